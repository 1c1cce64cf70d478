-- The ends in transactions from _from on: about _limit rows, and none beyond the oldest transaction that is still open,
-- below which nothing is ever added. next is where the next call continues; a row without an id says that nothing
-- ended. Completions come from outcomes, ends of other attempts from attempts, and the rest from dead tasks.
create function tusk_fn.ended(_from xid8, _limit int) returns table (next text, id uuid, queue text, state smallint,
  at timestamptz, rescued boolean)
language plpgsql stable set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
begin
  return query
  with edge as materialized (select pg_snapshot_xmin(pg_current_snapshot()) as upto),
  last as materialized (
    select y.xid, y.n from (
      select y.xid, row_number() over (order by y.xid) as n from (
        (select o.xid from tusk.outcome o where o.xid >= _from and o.xid < (select upto from edge) order by o.xid
          limit _limit)
        union all
        (select a.xid from tusk.attempt a
         where a.xid >= _from and a.xid < (select upto from edge)
           and (a.state >= 6 or a.error like 'worker ____________________________________ died')
         order by a.xid limit _limit)
        union all
        (select d.xid from tusk.dead d where d.xid >= _from and d.xid < (select upto from edge) order by d.xid
          limit _limit)) y
      order by y.xid
      limit _limit) y
    order by y.n desc
    limit 1),
  ended as (
    select o.xid, i.id, tusk_fn.queue_of(o.lane) as queue, 6::smallint as state,
      o.finished_at - coalesce(o.ago[i.place], 0) * interval '1 ms' as at, false as rescued
    from tusk.outcome o cross join lateral tusk_fn.ids_of(o.firsts, o.counts) i
    where o.xid >= _from and o.xid <= (select xid from last)
    union all
    select a.xid, a.id, '', a.state, a.ended_at, a.error like 'worker ____________________________________ died'
    from tusk.attempt a
    where a.xid >= _from and a.xid <= (select xid from last)
      and (a.state >= 6 or a.error like 'worker ____________________________________ died')
    union all
    select d.xid, d.id, tusk_fn.queue_of(d.lane), d.state, d.finished_at, false
    from tusk.dead d
    where d.xid >= _from and d.xid <= (select xid from last)
      and not exists (select from tusk.attempt a where a.id = d.id and a.xid = d.xid))
  select case when l.n >= _limit then (l.xid::text::bigint + 1)::text else e.upto::text end, r.id, r.queue, r.state,
    r.at, r.rescued
  from edge e left join last l on true left join ended r on true
  order by r.xid, r.at;
end $$;

-- Adds the next stretch of the log to the catalogue, about _aim rows, once there are _least rows behind which nobody
-- writes any more. Returns whether there is more to do.
create function tusk_fn.catalogue_next(_term bigint, _least int, _aim int) returns boolean language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off as $$
#variable_conflict use_column
declare
  _end   bigint := pg_snapshot_xmin(pg_current_snapshot())::text::bigint;
  _top   bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
  _added bigint;
  _left  numeric; -- rows from _lo to _top
  _lo    bigint;
  _hi    bigint;
  _rows  bigint;
  m      tusk.catalogue_end;
begin
  perform tusk_fn.hold_lead(_term);
  select * into m from tusk.catalogue_end;
  select coalesce(sum(a.added), 0)::bigint into _added from tusk.lane_tally a;
  _lo := m.upto::text::bigint;
  _left := _added - m.added;
  if _left < _least or _lo >= _end then
    return false;
  end if;
  _hi := least(_end, _lo + ceil((_top - _lo) * _aim / _left));
  with log as materialized (
    select t.lane, tusk_fn.short_kind(t.kind) as kind, tusk_fn.short_tags(t.tags) as tags, t.id, t.enqueued_at,
      cardinality(t.packed) as tasks, tusk_fn.id_after(t.id, cardinality(t.packed) - 1) as newest, t.xid, t.n
    from (select distinct l.id from tusk.lane l) l
    cross join lateral (
      select t.* from tusk.log t
      where t.lane = l.id and t.xid >= _lo::text::xid8 and t.xid < _hi::text::xid8) t),
  word as (
    select g.lane, g.kind, null as tag, array_agg(g.id) as ids, count(*)::int as tasks, min(g.enqueued_at) as from_at,
      max(g.enqueued_at) as until_at
    from log g where g.tasks is null group by g.lane, g.kind
    union all
    select g.lane, null, u.tag, array_agg(g.id), count(*)::int, min(g.enqueued_at), max(g.enqueued_at)
    from log g cross join lateral unnest(g.tags) u(tag) where g.tasks is null and u.tag is not null
      group by g.lane, u.tag),
  packed as (
    select p.lane, p.kind, p.tag, p.newest[1] as newest, p.oldest[1] as oldest, p.from_at, p.until_at, p.tasks,
      p.xids, p.ns
    from (
      select g.lane, g.kind, null as tag, array_agg(g.newest order by g.newest desc) as newest,
        array_agg(g.id order by g.id) as oldest, min(g.enqueued_at) as from_at, max(g.enqueued_at) as until_at,
        sum(g.tasks)::int as tasks, array_agg(g.xid order by g.id) as xids, array_agg(g.n order by g.id) as ns
      from log g where g.tasks > 0 group by g.lane, g.kind
      union all
      select g.lane, null, u.tag, array_agg(g.newest order by g.newest desc), array_agg(g.id order by g.id),
        min(g.enqueued_at), max(g.enqueued_at), sum(g.tasks)::int, array_agg(g.xid order by g.id),
          array_agg(g.n order by g.id)
      from log g cross join lateral unnest(g.tags) u(tag) where g.tasks > 0 and u.tag is not null
        group by g.lane, u.tag) p),
  sorted as materialized (
    select w.lane, w.kind, w.tag, w.tasks, w.from_at, w.until_at,
      array(select x.id from unnest(w.ids) x(id) order by x.id desc) as newest_first from word w),
  stored as (
    insert into tusk.catalogue (lane, kind, tag, lo, hi, newest, oldest, from_at, until_at, tasks, ids, xids, ns)
    select w.lane, w.kind, w.tag, _lo::text::xid8, _hi::text::xid8, w.newest_first[i],
      w.newest_first[least(i + 4999, w.tasks)], w.from_at, w.until_at, least(5000, w.tasks - i + 1),
      case when w.tasks <= 5000 then w.newest_first else w.newest_first[i : i + 4999] end, null, null
    from sorted w
    cross join generate_series(1, w.tasks, 5000) i
    union all
    select p.lane, p.kind, p.tag, _lo::text::xid8, _hi::text::xid8, p.newest, p.oldest, p.from_at, p.until_at,
      p.tasks, null, p.xids, p.ns from packed p)
  select coalesce(sum(coalesce(g.tasks, 1)), 0) into _rows from log g;
  update tusk.catalogue_end e set upto = _hi::text::xid8, added = case when _hi = _end
    then _added - _left * (_top - _hi) / (_top - _lo) else least(m.added + _rows, _added - 1) end;
  return _hi < _end;
end $$;

-- Adds an entry for a task whose values were replaced in its row of the log.
create function tusk_fn.catalogue_anew(t tusk_fn.task, _kind text, _tags text[]) returns void language plpgsql as $$
begin
  insert into tusk.catalogue (lane, kind, tag, lo, hi, newest, oldest, from_at, until_at, tasks, ids)
  select t.lane, w.kind, w.tag, t.xid, (t.xid::text::bigint + 1)::text::xid8, t.id, t.id, t.enqueued_at,
    t.enqueued_at, 1, array[t.id]
  from (
    select tusk_fn.short_kind(_kind) as kind, null as tag where tusk_fn.short_kind(_kind) <> t.kind
    union all
    select null, u.tag from unnest(tusk_fn.short_tags(_tags)) u(tag)
    where u.tag is not null and (t.tags is null or u.tag <> all(t.tags))) w;
end $$;

-- Up to _limit tasks that have all tags, or that were enqueued in a span of time, in no particular order.
create function tusk_fn.few_waiting(_tags text[], _since timestamptz, _until timestamptz, _limit int)
  returns setof uuid language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = on set jit = off as $$
begin
  if _tags is not null then
    return query select s.id from tusk.waiting s where s.tags @> _tags limit _limit;
  else
    return query
    select s.id
    from (
      (select w.id from tusk.waiting w
       where w.line is null and w.enqueued_at >= _since and w.enqueued_at < _until limit _limit)
      union all
      select l from tusk_fn.few_line(null, null, _limit) l) s -- the time of those is looked at afterwards
    limit _limit;
  end if;
end $$;

-- Up to _limit tasks in the lines of queues (null: of all), of one tenant unless that is null.
create function tusk_fn.few_line(_queues bigint[], _tenant text, _limit int) returns setof uuid language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off as $$
begin
  return query
  select s.id
  from (select distinct u.queue from unnest(coalesce(_queues, array(select l.id >> 16 from tusk.lane l))) u(queue)) q
  cross join lateral (
    (select w.id from tusk.waiting w
     where _tenant is null and w.line is not null and w.lane >> 16 = q.queue
     order by w.lane >> 16, coalesce(w.tenant, ''), coalesce(w.partition, ''), w.lane, w.line, w.n limit _limit)
    union all
    (select w.id from tusk.waiting w
     where w.line is not null and w.lane >> 16 = q.queue and coalesce(w.tenant, '') = _tenant
     order by w.lane >> 16, coalesce(w.tenant, ''), coalesce(w.partition, ''), w.lane, w.line, w.n limit _limit)) s
  limit _limit;
end $$;

create function tusk_fn.few_dead(_tags text[], _since timestamptz, _until timestamptz, _limit int) returns setof uuid
  language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = on set jit = off as $$
begin
  if _tags is not null then
    return query select s.id from tusk.dead s where s.tags @> _tags limit _limit;
  else
    return query select s.id from tusk.dead s where s.enqueued_at >= _since and s.enqueued_at < _until limit _limit;
  end if;
end $$;
