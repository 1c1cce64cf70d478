-- name: follow
select pg_snapshot_xmin(pg_current_snapshot())::text

-- name: ended
-- The ends in transactions from $1 on: about $2 rows, all below the oldest transaction that is still open, where no
-- more rows can appear. The first column is where the next call continues. A row without an id says that nothing ended.
-- Completions come from outcomes, ends of other attempts from attempts, and the rest from dead tasks.
with edge as materialized (select pg_snapshot_xmin(pg_current_snapshot()) as upto, $1::text::xid8 as since),
last as materialized (
  select y.xid, y.n from (
    select y.xid, row_number() over (order by y.xid) as n from (
      (select o.xid from tusk.outcome o
       where o.xid >= (select since from edge) and o.xid < (select upto from edge) order by o.xid limit $2)
      union all
      (select a.xid from tusk.attempt a
       where a.xid >= (select since from edge) and a.xid < (select upto from edge)
         and (a.state >= 6 or a.error like 'worker ____________________________________ died')
       order by a.xid limit $2)
      union all
      (select d.xid from tusk.dead d
       where d.xid >= (select since from edge) and d.xid < (select upto from edge) order by d.xid limit $2)) y
    order by y.xid
    limit $2) y
  order by y.n desc
  limit 1),
ended as (
  select o.xid, i.id, tusk_fn.queue_of(o.lane) as queue, 6::smallint as state,
    o.finished_at - coalesce(o.ago[i.place], 0)::float8 * interval '1 ms' as at, false as rescued
  from tusk.outcome o cross join lateral tusk_fn.ids_of(o.firsts, o.counts) i
  where o.xid >= (select since from edge) and o.xid <= (select xid from last)
  union all
  select a.xid, a.id, '', a.state, a.ended_at, a.error like 'worker ____________________________________ died'
  from tusk.attempt a
  where a.xid >= (select since from edge) and a.xid <= (select xid from last)
    and (a.state >= 6 or a.error like 'worker ____________________________________ died')
  union all
  select d.xid, d.id, tusk_fn.queue_of(d.lane), d.state, d.finished_at, false
  from tusk.dead d
  where d.xid >= (select since from edge) and d.xid <= (select xid from last)
    and not exists (select from tusk.attempt a where a.id = d.id and a.xid = d.xid))
select case when l.n >= $2 then (l.xid::text::bigint + 1)::text else e.upto::text end, r.id, r.queue, r.state,
  r.at, r.rescued
from edge e left join last l on true left join ended r on true
order by r.xid, r.at
