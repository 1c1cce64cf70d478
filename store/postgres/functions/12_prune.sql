-- A snapshot of the ends that no open transaction can have missed. A transaction that took a task for unfinished had
-- drawn its xid before that task ended. So once all xids up to one drawn now have ended, everything that is visible now
-- has ended for everybody.
create function tusk_fn.over() returns pg_snapshot language plpgsql as $$
declare
  _here pg_snapshot := pg_current_snapshot();
  _mine xid8 := pg_current_xact_id();
  g     tusk.grace;
begin
  select * into g from tusk.grace;
  if pg_snapshot_xmin(pg_current_snapshot()) >= _mine then -- nobody else writes
    return _here;
  elsif pg_snapshot_xmin(pg_current_snapshot()) >= g.upto then
    update tusk.grace set over = g.next, next = _here, upto = _mine;
    return g.next;
  end if;
  return g.over;
end $$;

-- Whether a task that ended in a transaction may be deleted. An xid from the future is one of another server, from
-- before a rebase.
create function tusk_fn.may_go(_xid xid8, _over pg_snapshot) returns boolean language sql stable as $$
  select pg_visible_in_snapshot(_xid, _over) or _xid >= pg_snapshot_xmax(pg_current_snapshot())
$$;

-- Deletes up to _limit finished tasks whose retention is over. Tasks that somebody holds, or whose key somebody holds,
-- are left for later. So are tasks that an open transaction may have seen unfinished, since it may store a task that
-- needs them, and completed ones of which a task that needs them has not been told: of one that is gone nobody knows
-- how it ended. _keep has the retentions of completed, cancelled and discarded tasks in queues without retentions of
-- their own. A call reads _looks flushes, and the next call continues at hand.
create function tusk_fn.prune(_term bigint, _limit int, _keep bigint[], _queues tusk_fn.retention[],
  _keep_stats bigint, _forget bigint, _from bigint, _looks int,
  out deleted int, out hand bigint)
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off as $$
#variable_conflict use_column
declare
  _now   timestamptz := clock_timestamp();
  _over  pg_snapshot;
  _young timestamptz; -- no queue deletes what was completed later
  _more  int;
begin
  perform tusk_fn.need_read_committed();
  perform tusk_fn.lead(_term);
  _young := (select _now - min(k) * interval '1 us' from (
    select q.completed from unnest(_queues) q union all select _keep[1]) k(k) where k > 0);
  if exists (select from tusk.dead x where x.finished_at <= _now)
    or (select x.finished_at <= _young from tusk.outcome x order by x.xid limit 1) then
    _over := tusk_fn.over();
  end if;
  perform tusk_fn.classify(_term, _keep[1], _queues);
  deleted := tusk_fn.prune_dead(_now, _over, _keep, _queues, _limit);
  select f.deleted, f.hand into _more, hand
  from tusk_fn.prune_flushes(_now, _young, _over, _keep[1], _queues, _from, _limit - deleted, _looks) f;
  deleted := deleted + _more;
  if _keep_stats > 0 then
    perform tusk_fn.prune_stats(_now - _keep_stats * interval '1 us', _limit);
  end if;
  delete from tusk.worker w
  where w.dead and w.beat_at < _now - _forget * interval '1 us'
    and not exists (select from tusk.lease l where l.worker = w.id);
  if deleted > 0 then
    perform tusk_fn.hold_lead(_term);
  end if;
end $$;

-- Deletes cancelled and discarded tasks, and completed ones that have a row of their own.
create function tusk_fn.prune_dead(_now timestamptz, _over pg_snapshot, _keep bigint[], _queues tusk_fn.retention[],
  _limit int) returns int
language plpgsql as $$
#variable_conflict use_column
declare
  _young timestamptz := (
    select _now - min(k) * interval '1 us' from (
      select unnest(_keep) union all
      select unnest(array[q.completed, q.cancelled, q.discarded]) from unnest(_queues) q) k(k) where k > 0);
  _ids   uuid[];
  d      record;
begin
  for d in
    select x.id, x.tenant, x.key, x.lane from tusk.dead x
    left join unnest(_queues) q on q.queue = x.lane >> 16
    where x.finished_at <= _young -- those that no queue deletes yet are not read
      and x.finished_at <= _now - nullif(
      case when q.queue is null then _keep[x.state - 5]
        else case x.state when 6 then q.completed when 7 then q.cancelled else q.discarded end end, 0) * interval '1 us'
      and tusk_fn.may_go(x.xid, _over)
      and not (x.state = 6 and exists (select from tusk.open_need o where o.parent = x.id))
    order by x.finished_at
    limit _limit
    for update of x skip locked
  loop
    if d.key is not null then
      continue when not tusk_fn.try_keys(array[d.lane >> 16], array[tusk_fn.tenant_key(d.tenant, d.key)]);
      perform tusk_fn.forget_key(d.lane >> 16, tusk_fn.tenant_key(d.tenant, d.key), d.id);
    end if;
    _ids := _ids || d.id;
    delete from tusk.dead x where x.id = d.id;
  end loop;
  perform tusk_fn.forget_tasks(_ids);
  return coalesce(cardinality(_ids), 0);
end $$;

-- Deletes completed tasks with the row of their flush. Without it their rows in the log mean nothing; those go with
-- their segment.
--
-- Flushes are read in the order of their xids, which is nearly the order in which they ended, up to the first that is
-- too young for every queue. Before it there may be any number of flushes that some queue keeps for longer, so _looks
-- bounds a call.
create function tusk_fn.prune_flushes(_now timestamptz, _young timestamptz, _over pg_snapshot, _keep bigint,
  _queues tusk_fn.retention[], _from bigint, _limit int, _looks int, out deleted int, out hand bigint)
language plpgsql as $$
#variable_conflict use_column
declare
  _needed boolean := pg_relation_size('tusk.open_need') > 0;
  _look   int := 0;
  _ids    uuid[];
  _all    uuid[];
  _upto   xid8;
  _late   xid8[];
  f       record;
  o       record;
begin
  deleted := 0;
  hand := 0;
  -- Locked, so that nobody sums up what is deleted meanwhile.
  select e.upto, e.late into _upto, _late from tusk.stat_end e for share;
  for f in
    select x.ctid as at, x.xid, x.finished_at,
      x.finished_at <= _now - nullif(case when q.queue is null then _keep else q.completed end, 0)
        * interval '1 us' as over
    from tusk.outcome x
    left join unnest(_queues) q on q.queue = x.lane >> 16
    where x.xid >= _from::text::xid8 and _young is not null
    order by x.xid
  loop
    exit when f.finished_at > _young and f.finished_at <= _now; -- later than now if the clock was set back
    _look := _look + 1;
    if deleted >= _limit or _look > _looks then
      hand := f.xid::text::bigint;
      exit;
    end if;
    continue when f.over is not true or tusk_fn.may_go(f.xid, _over) is not true;
    select x.ctid as at, x.firsts, x.counts, x.lane, x.keyed into o
    from tusk.outcome x where x.ctid = f.at
    for update skip locked;
    continue when not found;
    _all := array(select i.id from tusk_fn.ids_of(o.firsts, o.counts) i order by i.place);
    _ids := _all[1 : _limit - deleted];
    continue when _needed and cardinality(tusk_fn.children_of(_ids)) > 0;
    continue when o.keyed > 0 and not tusk_fn.forget_keys_of(o.lane, _ids);
    perform tusk_fn.forget_tasks(_ids);
    deleted := deleted + cardinality(_ids);
    if cardinality(_ids) < cardinality(_all) then
      update tusk.outcome x set firsts = _all[cardinality(_ids) + 1 :], counts = null,
        ago = x.ago[cardinality(_ids) + 1 :] where x.ctid = o.at;
      hand := f.xid::text::bigint;
      exit;
    end if;
    perform tusk_fn.drop_flush(o.at, _upto, _late);
  end loop;
end $$;

-- Deletes statistics of before a time, and groups of errors that no task has any more.
create function tusk_fn.prune_stats(_before timestamptz, _limit int) returns void
language plpgsql as $$
#variable_conflict use_column
declare
  _upto xid8 := (select e.upto from tusk.stat_end e);
  _old  timestamptz := _before - interval '1 minute';
begin
  delete from tusk.stat x using unnest('{0,1,60,1440}'::int[]) m(minutes)
  where x.minutes = m.minutes and x.at <= _before - (m.minutes + 1) * interval '1 minute';
  if (select y.finished_at <= _old from tusk.outcome y where y.xid >= _upto order by y.xid limit 1) then
    update tusk.outcome x set stats = null
    where x.ctid = any(array(
      select y.ctid from tusk.outcome y where y.stats is not null and y.xid >= _upto and y.finished_at <= _old
        for update skip locked));
  end if;
  delete from tusk.failure f
  where f.ctid = any(array(
    select y.ctid from tusk.failure y
    where y.last_at <= _before
      and not exists (select from tusk.waiting w where w.failure = y.fingerprint and w.kind = y.kind
        and w.lane >> 16 = y.queue and w.state = 5)
      and not exists (select from tusk.dead x where x.failure = y.fingerprint and x.kind = y.kind
        and x.lane >> 16 = y.queue and x.state = 8)
    limit _limit for update skip locked));
end $$;

-- Forgets the keys of tasks that were completed in a lane, of which some have one, or none. Returns false, and forgets
-- nothing, if somebody holds one.
create function tusk_fn.forget_keys_of(_lane bigint, _ids uuid[]) returns boolean language plpgsql as $$
declare
  _named uuid[];
  _keys  text[];
begin
  select array_agg(t.id), array_agg(t.key) into _named, _keys
  from (
    select distinct t.id, tusk_fn.tenant_key(t.tenant, t.key) as key
    from tusk.log t
    where t.id = any(_ids) and t.packed is null and t.lane = _lane and t.key is not null) t;
  if not tusk_fn.try_keys(array(select _lane >> 16 from unnest(_keys)), _keys) then
    return false;
  end if;
  perform tusk_fn.forget_key(_lane >> 16, t.key, t.id) from unnest(_named, _keys) t(id, key);
  return true;
end $$;

-- Deletes a flush. Its statistics are kept if they are not summed up yet, as those of xids from _upto on and of _late
-- are not.
create function tusk_fn.drop_flush(_at tid, _upto xid8, _late xid8[]) returns void language sql volatile as $$
  with gone as (
    delete from tusk.outcome x where x.ctid = _at returning x.xid, x.finished_at, x.stats)
  insert into tusk.stat (at, stats)
  select g.finished_at, g.stats from gone g where g.stats is not null and (g.xid >= _upto or g.xid = any(_late))
$$;

-- Records which queues keep completed tasks for a much shorter, or a much longer, time than others.
create function tusk_fn.classify(_term bigint, _keep bigint, _queues tusk_fn.retention[]) returns void
  language plpgsql as $$
#variable_conflict use_column
declare
  _other bigint[];
  _class text[];
begin
  select array_agg(x.queue), array_agg(x.class) into _other, _class
  from (
    select q.queue, case
      when q.completed = _keep then null
      when q.completed = 0 or q.completed >= 2 * _keep and _keep > 0 then 'long'
      when _keep = 0 or q.completed <= _keep / 2 then 'short' end as class
    from unnest(_queues) q) x
  where x.class is not null;
  if not exists (
    select from unnest(_other, _class) w(queue, class) full join tusk.class c on c.queue = w.queue
    where c.class is distinct from w.class) then
    return;
  end if;
  perform tusk_fn.hold_lead(_term);
  delete from tusk.class;
  insert into tusk.class (queue, class) select * from unnest(_other, _class);
end $$;

-- Deletes what is kept about tasks besides the tasks themselves.
create function tusk_fn.forget_tasks(_ids uuid[]) returns void language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
begin
  delete from tusk.attempt x where x.id = any(_ids);
  delete from tusk.note x where x.id = any(_ids);
  if pg_relation_size('tusk.need') > 0 then
    delete from tusk.need x where x.child = any(_ids);
  end if;
end $$;
