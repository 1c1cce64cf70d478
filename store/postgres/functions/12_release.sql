-- How an archive reads finished tasks whose retention is over, and how they are deleted once it has them. Retentions,
-- and which tasks may go, are as in prune.

-- The flushes after an xid whose tasks are due, oldest first. All flushes of an xid come together, until there are
-- _tasks tasks or _looks flushes were read. A last row without firsts says that there may be more after its xid.
create function tusk_fn.due_flushes(_keep bigint, _queues bigint[], _completed bigint[], _after bigint, _tasks bigint,
  _looks int)
returns table (xid bigint, lane bigint, token uuid, worker uuid, claimed_at timestamptz, finished_at timestamptz,
  lo bigint, firsts uuid[], counts int[], ago int[], queue text)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
  _now   timestamptz := clock_timestamp();
  _young timestamptz := (select _now - min(k) * interval '1 us' from unnest(_completed || _keep) k where k > 0);
  _last  bigint := _after;
  _over  pg_snapshot;
  o      record;
begin
  perform tusk_fn.need_read_committed();
  if _young is null or (select x.finished_at <= _young from tusk.outcome x order by x.xid limit 1) is not true then
    return;
  end if;
  _over := tusk_fn.over();
  for o in
    select x.*, x.xid::text::bigint as at,
      x.finished_at <= _now
        - nullif(case when q.queue is null then _keep else q.completed end, 0) * interval '1 us' as over
    from tusk.outcome x
    left join unnest(_queues, _completed) q(queue, completed) on q.queue = x.lane >> 16
    where x.xid > _after::text::xid8
    order by x.xid
  loop
    exit when o.finished_at > _young and o.finished_at <= _now;
    if o.at <> _last and (_tasks <= 0 or _looks <= 0) then
      return query select _last, null::bigint, null::uuid, null::uuid, null::timestamptz, null::timestamptz,
        null::bigint, null::uuid[], null::int[], null::int[], null::text;
      return;
    end if;
    _last := o.at;
    _looks := _looks - 1;
    continue when o.over is not true or tusk_fn.may_go(o.xid, _over) is not true;
    continue when pg_relation_size('tusk.open_need') > 0
      and cardinality(tusk_fn.children_of(array(select i.id from tusk_fn.ids_of(o.firsts, o.counts) i))) > 0;
    _tasks := _tasks - coalesce((select sum(c) from unnest(o.counts) c), cardinality(o.firsts));
    return query select o.at, o.lane, o.token, o.worker, o.claimed_at, o.finished_at, o.lo::text::bigint,
      o.firsts, o.counts, o.ago, tusk_fn.queue_of(o.lane);
  end loop;
end $$;

-- The dead tasks that are due and ended after a given one, oldest first.
create function tusk_fn.due_dead(_keep bigint[], _queues bigint[], _completed bigint[], _cancelled bigint[],
  _discarded bigint[], _at timestamptz, _id uuid, _limit int)
returns setof tusk.dead language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
  _now   timestamptz := clock_timestamp();
  _young timestamptz := (
    select _now - min(k) * interval '1 us' from unnest(_keep || _completed || _cancelled || _discarded) k where k > 0);
  _over  pg_snapshot;
begin
  perform tusk_fn.need_read_committed();
  if _young is null or not exists (select from tusk.dead x where x.finished_at <= _young) then
    return;
  end if;
  _over := tusk_fn.over();
  return query
  select x.* from tusk.dead x
  left join unnest(_queues, _completed, _cancelled, _discarded) q(queue, completed, cancelled, discarded)
    on q.queue = x.lane >> 16
  where x.finished_at >= _at and (x.finished_at, x.id) > (_at, _id) and x.finished_at <= _young
    and x.finished_at <= _now - nullif(
      case when q.queue is null then _keep[x.state - 5]
        else case x.state when 6 then q.completed when 7 then q.cancelled else q.discarded end end, 0) * interval '1 us'
    and tusk_fn.may_go(x.xid, _over)
    and not (x.state = 6 and exists (select from tusk.open_need o where o.parent = x.id))
  order by x.finished_at, x.id
  limit _limit;
end $$;

-- Deletes flushes that had this many tasks. Returns the places of flushes that have fewer by now or are gone, and of
-- flushes that are held. Those stay.
create function tusk_fn.release_flushes(_xids bigint[], _lanes bigint[], _tokens uuid[], _finished timestamptz[],
  _tasks bigint[])
returns table (place int, held boolean)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
  _beside boolean := pg_relation_size('tusk.attempt') > 0 or pg_relation_size('tusk.note') > 0
    or pg_relation_size('tusk.need') > 0;
  _found  bigint;
  _ids    uuid[];
  _upto   xid8;
  _late   xid8[];
  o       record;
begin
  perform tusk_fn.need_read_committed();
  -- Locked, so that nobody sums up what is deleted meanwhile.
  select e.upto, e.late into _upto, _late from tusk.stat_end e for share;
  for i in 1 .. cardinality(_xids) loop
    _found := 0;
    for o in
      select x.ctid as at, x.lane, x.firsts, x.counts, x.keyed from tusk.outcome x
      where x.xid = _xids[i]::text::xid8 and x.lane = _lanes[i] and x.token = _tokens[i]
        and x.finished_at = _finished[i]
      for update skip locked
    loop
      _found := _found + coalesce((select sum(c) from unnest(o.counts) c), cardinality(o.firsts));
      if _beside or o.keyed > 0 then
        _ids := array(select u.id from tusk_fn.ids_of(o.firsts, o.counts) u);
        if o.keyed > 0 and not tusk_fn.forget_keys_of(o.lane, _ids) then
          return query select i, true;
          continue;
        end if;
        perform tusk_fn.forget_tasks(_ids);
      end if;
      perform tusk_fn.drop_flush(o.at, _upto, _late);
    end loop;
    if _found < _tasks[i] then
      return query select i, exists (
        select from tusk.outcome x
        where x.xid = _xids[i]::text::xid8 and x.lane = _lanes[i] and x.token = _tokens[i]
          and x.finished_at = _finished[i]);
    end if;
  end loop;
end $$;

-- Deletes dead tasks that ended in these transactions. Returns the ids of those that somebody holds. Those stay.
create function tusk_fn.release_dead(_ids uuid[], _xids bigint[]) returns uuid[]
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
  _gone uuid[] := '{}';
  d     record;
begin
  perform tusk_fn.need_read_committed();
  for d in
    select x.* from (select * from unnest(_ids, _xids) u(id, xid) order by u.id) u
    cross join lateral (
      select x.id, x.tenant, x.key, x.lane from tusk.dead x where x.id = u.id and x.xid = u.xid::text::xid8
      for update skip locked) x
  loop
    if d.key is not null then
      continue when not tusk_fn.try_keys(array[d.lane >> 16], array[tusk_fn.tenant_key(d.tenant, d.key)]);
      perform tusk_fn.forget_key(d.lane >> 16, tusk_fn.tenant_key(d.tenant, d.key), d.id);
    end if;
    _gone := _gone || d.id;
    delete from tusk.dead x where x.id = d.id;
  end loop;
  perform tusk_fn.forget_tasks(_gone);
  return array(
    select u.id from unnest(_ids, _xids) u(id, xid)
    cross join lateral (select from tusk.dead x where x.id = u.id and x.xid = u.xid::text::xid8 offset 0) x);
end $$;
