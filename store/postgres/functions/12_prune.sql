-- Returns a snapshot. No open transaction takes a task for unfinished whose end is visible in it. A transaction that
-- took a task for unfinished had drawn its xid before the task ended. So tasks whose end is visible now have ended for
-- everybody once all transactions up to an xid drawn now have ended.
create function tusk_fn.over() returns pg_snapshot language plpgsql set jit = off as $$
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

-- Whether a task that ended in a transaction may be deleted. An xid in the future belongs to another server, from
-- before a rebase.
create function tusk_fn.may_go(_xid xid8, _over pg_snapshot) returns boolean language sql stable as $$
  select pg_visible_in_snapshot(_xid, _over) or _xid >= pg_snapshot_xmax(pg_current_snapshot())
$$;

-- Deletes up to _limit completed tasks whose retention is over, together with the row of their flush. Without that row
-- their rows in the log have no meaning, and are dropped with their segment. Tasks that somebody holds, or whose key
-- somebody holds, are left for later. So are tasks that an open transaction may have seen unfinished, since it may
-- store a task that needs them. The same is true of tasks whose end a task that needs them has not been told: once they
-- are deleted, nobody knows how they ended. _keep is the retention of tasks in queues without a retention of their own.
--
-- Flushes are read in the order of their xids, which is nearly the order in which they ended, up to the first that is
-- too young for every queue. Before it there may be any number of flushes that some queue keeps for longer, so a call
-- reads _looks flushes, and the next call continues at hand.
create function tusk_fn.prune(_term bigint, _limit int, _keep bigint, _queues bigint[], _completed bigint[],
  _from bigint, _looks int, out deleted int, out hand bigint)
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off as $$
#variable_conflict use_column
declare
  _now   timestamptz := clock_timestamp();
  _young timestamptz := (select _now - min(k) * interval '1 us' from unnest(_completed || _keep) k where k > 0);
  _needs boolean;
  _over  pg_snapshot;
  _ids   uuid[];
  _all   uuid[];
  _upto  xid8;
  _late  xid8[];
  f      record;
  o      record;
begin
  perform tusk_fn.lead(_term);
  deleted := 0;
  hand := 0;
  if (select x.finished_at <= _young from tusk.outcome x order by x.xid limit 1) is not true then
    return;
  end if;
  perform tusk_fn.hold_lead(_term);
  _over := tusk_fn.over();
  _needs := pg_relation_size('tusk.open_need') > 0; -- read last: a transaction that was waited for may have stored one
  -- Locked, so that nobody sums up statistics that are deleted meanwhile.
  select e.upto, e.late into _upto, _late from tusk.stat_end e for share;
  for f in
    select x.ctid as at, x.xid, x.finished_at,
      x.finished_at <= _now - nullif(case when q.queue is null then _keep else q.completed end, 0)
        * interval '1 us' as over
    from tusk.outcome x
    left join unnest(_queues, _completed) q(queue, completed) on q.queue = x.lane >> 16
    where x.xid >= _from::text::xid8
    order by x.xid
  loop
    exit when f.finished_at > _young and f.finished_at <= _now; -- later than now if the clock was set back
    _looks := _looks - 1;
    if deleted >= _limit or _looks < 0 then
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
    continue when _needs and cardinality(tusk_fn.children_of(_ids)) > 0;
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

-- Removes completed tasks of a lane from their keys, if they have any. If somebody holds one of the keys, it returns
-- false and removes nothing.
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
  if tusk_fn.try_keys(array(select _lane >> 16 from unnest(_keys)), _keys) <> '{}' then
    return false;
  end if;
  perform tusk_fn.forget_key(_lane >> 16, t.key, t.id) from unnest(_named, _keys) t(id, key);
  return true;
end $$;

-- Deletes a flush. Its statistics are kept if they are not summed up yet, which is so for xids from _upto on and in
-- _late.
create function tusk_fn.drop_flush(_at tid, _upto xid8, _late xid8[]) returns void language sql volatile as $$
  with gone as (
    delete from tusk.outcome x where x.ctid = _at returning x.xid, x.finished_at, x.stats)
  insert into tusk.stat (at, stats)
  select g.finished_at, g.stats from gone g where g.stats is not null and (g.xid >= _upto or g.xid = any(_late))
$$;

-- Deletes the attempts, notes and needs of tasks, but not the tasks themselves.
create function tusk_fn.forget_tasks(_ids uuid[]) returns void language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
begin
  delete from tusk.attempt x where x.id = any(_ids);
  delete from tusk.note x where x.id = any(_ids);
  if pg_relation_size('tusk.need') > 0 then
    delete from tusk.need x where x.child = any(_ids);
  end if;
end $$;
