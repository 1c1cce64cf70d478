-- Housekeeping of lanes and leases, in a short transaction for each. One statement selects the lanes that need it,
-- which are few.

-- name: untidy_lanes
-- The lanes that need tidying: they have new rows, more than 2 * $1 positions, or nothing new in $2 transactions.
select l.id
from (select distinct l.id from tusk.lane l) l
cross join pg_current_snapshot() here
left join tusk.lane_tally a on a.lane = l.id
left join lateral (select q.no, q.done, q.win from tusk.lane_position q where q.lane = l.id order by q.no desc
  limit 1) p on true
where a.lane is null
  or pg_snapshot_xmax(here)::text::bigint - pg_snapshot_xmax(a.seen)::text::bigint > $2::bigint
  or exists (select from tusk.log t where t.lane = l.id and t.xid >= pg_snapshot_xmax(a.seen)
    and t.xid < pg_snapshot_xmax(here))
  or exists (
    select from pg_snapshot_xip(a.seen) x
    cross join lateral (select from tusk.log t where t.lane = l.id and t.xid = x limit 1) late
    where pg_visible_in_snapshot(x, here))
  or p.win is null and (
    pg_snapshot_xmax(here)::text::bigint - pg_snapshot_xmin(p.done)::text::bigint > $2
    or pg_snapshot_xmin(p.done) < pg_snapshot_xmax(p.done) and pg_snapshot_xmin(here) >= pg_snapshot_xmax(p.done))
  or exists (select from tusk.lane_position q where q.lane = l.id and q.no < p.no - 2 * $1::bigint)

-- name: try_lane
select tusk_fn.try_lane($1)

-- name: tally_lane
-- Adds the first $3 new rows of lane $1, and all others of the last transaction among them, to the lane's tally. The
-- snapshot is cut behind that transaction. The lane's lock is held, so claims have to wait: the rest is left to another
-- transaction. Returns whether there may be more.
insert into tusk.lane_tally as a (lane, seen, added)
select $1::bigint, r.here, r.late + r.rows
from (
  select b.here, b.seen, (
      select coalesce(sum(late.rows), 0)::bigint from pg_snapshot_xip(b.seen) x
      cross join lateral (select sum(coalesce(pg_catalog.cardinality(t.packed), 1)) as rows from tusk.log t
        where t.lane = $1 and t.xid = x) late
      where pg_visible_in_snapshot(x, b.here)) as late, (
      select coalesce(sum(coalesce(pg_catalog.cardinality(t.packed), 1)), 0)::bigint from tusk.log t
      where t.lane = $1 and t.xid >= pg_snapshot_xmax(b.seen) and t.xid < pg_snapshot_xmax(b.here)
        and pg_visible_in_snapshot(t.xid, b.here)) as rows
  from (
    select n.seen, case when e.xid is null then n.now else format('%s:%s:%s',
      least(pg_snapshot_xmin(n.now)::text::bigint, e.xid), e.xid, (
        select string_agg(x::text, ',' order by x::text::bigint) from pg_snapshot_xip(n.now) x
        where x::text::bigint < e.xid))::pg_snapshot end as here
    from (
      select pg_current_snapshot() as now,
        (select coalesce(max(a.seen::text), '1:1:') from tusk.lane_tally a where a.lane = $1)::pg_snapshot as seen
      offset 0) n
    left join lateral (
      select t.xid::text::bigint + 1::bigint as xid from tusk.log t
      where t.lane = $1 and t.xid >= pg_snapshot_xmax(n.seen) and t.xid < pg_snapshot_xmax(n.now)
      order by t.lane, t.xid, t.n offset $3::bigint limit 1) e on true
    offset 0) b
  offset 0) r
where r.late + r.rows > 0
  or pg_snapshot_xmax(r.here)::text::bigint - pg_snapshot_xmax(r.seen)::text::bigint > $2::bigint
on conflict (lane) do update set seen = excluded.seen, added = a.added + excluded.added
returning pg_snapshot_xmax(seen) < pg_snapshot_xmax(pg_current_snapshot())

-- name: trim_lane
-- Deletes the old positions of lane $1, except about $2 of them.
delete from tusk.lane_position q
using (select p.no from tusk.lane_position p where p.lane = $1 order by p.no desc limit 1) p
where q.lane = $1 and q.no < p.no - $2::bigint
  and exists (select from tusk.lane_position o where o.lane = $1 and o.no < p.no - 2 * $2)

-- name: move_lane
-- Moves the position of lane $1, which is empty, past old segments. Until then every claim looks for the rows of
-- transactions that an earlier claim saw in progress.
insert into tusk.lane_position (lane, no, done, win, at_xid, at_n, claimed)
select $1::bigint, p.no + 1, here, null, '0', 0, p.claimed
from (select q.* from tusk.lane_position q where q.lane = $1 order by q.no desc limit 1) p
cross join pg_current_snapshot() here
where p.win is null and (
    pg_snapshot_xmax(here)::text::bigint - pg_snapshot_xmin(p.done)::text::bigint > $2::bigint
    or pg_snapshot_xmin(p.done) < pg_snapshot_xmax(p.done) and pg_snapshot_xmin(here) >= pg_snapshot_xmax(p.done))
  and not exists (
    select from pg_snapshot_xip(p.done) x
    cross join lateral (select from tusk.log t where t.lane = $1 and t.xid = x limit 1) late)
  and not exists (select from tusk.log t where t.lane = $1 and t.xid >= pg_snapshot_xmax(p.done))

-- name: unclosed_leases
-- Leases that are empty, or that have tasks that users' transactions have finished.
select l.token, l.lane from tusk.lease l
where pg_catalog.bit_count(l.open) = 0 or exists (select from tusk.finished f where f.token = l.token)

-- name: close_lease
-- A flush that holds the lease closes it as well. Without the lock, tasks that the flush has just closed would be
-- opened again.
select tusk_fn.close($1, $2, '{}', h.held)
from (
  select array(select l.ctid from tusk.lease l where l.token = $1 and l.lane = $2 for update skip locked) as held
  offset 0) h
where pg_catalog.cardinality(h.held) > 0

-- name: drop_finished
delete from tusk.finished f where not exists (select from tusk.lease l where l.token = f.token)

-- name: drop_stops
delete from tusk.stop s where not exists (select from tusk_fn.running r where r.token = s.token and r.id = s.id)

-- name: lost_lanes
-- The lanes that have tasks but no name. The indexes are read from lane to lane.
with recursive held as (
  (select t.lane from tusk.log t order by t.lane limit 1)
  union all
  select (select t.lane from tusk.log t where t.lane > h.lane order by t.lane limit 1) from held h
    where h.lane is not null),
waits as (
  (select w.lane from tusk.waiting w where w.line is null and w.lane >= (-1::bigint << 63) order by w.lane limit 1)
  union all
  select (select w.lane from tusk.waiting w where w.line is null and w.lane > h.lane order by w.lane limit 1)
  from waits h where h.lane is not null),
lines as ( -- one lane of each queue: the others are found in the log once their tasks are granted
{line_lanes})
select x.lane from (select h.lane from held h union select h.lane from waits h union select h.lane from lines h) x
where x.lane is not null and not exists (select from tusk.lane l where l.id = x.lane)

-- name: line_lanes
with recursive l as (
  (select w.lane from tusk.{line} w where w.line is not null
   order by w.lane >> 16, coalesce(w.tenant, ''), coalesce(w.partition, ''), w.lane, w.line, w.n limit 1)
  union all
  select (
    select w.lane from tusk.{line} w where w.line is not null and w.lane >> 16 > l.lane >> 16
    order by w.lane >> 16, coalesce(w.tenant, ''), coalesce(w.partition, ''), w.lane, w.line, w.n limit 1)
  from l where l.lane is not null)
select * from l

-- name: name_lost_lanes
-- Gives lanes $1 the names of queues that other lanes, workers or records mention.
insert into tusk.lane (id, queue)
select x.lane, n.queue
from (
  select l.queue from tusk.lane l
  union
  select q.name from tusk.worker w
  cross join lateral jsonb_array_elements_text(
    case jsonb_typeof(w.about operator(pg_catalog.->) 'queues') when 'array'
    then w.about operator(pg_catalog.->) 'queues' else '[]'::jsonb end) q(name)
  union
  select r.name from tusk.record r where r.kind in ('queue', 'limits')) n
join pg_catalog.unnest($1::bigint[]) x(lane) on x.lane >> 16 = tusk_fn.lane_of(n.queue, 0) >> 16

-- name: nameless
-- Those of lanes $1 that have no name.
select x.lane from pg_catalog.unnest($1::bigint[]) x(lane)
where not exists (select from tusk.lane l where l.id = x.lane)

-- name: lanes_after
-- The next $2 lanes after $1: whether nothing belongs to them, whether they are marked as idle, whether they need that
-- mark, whether they have been idle for $3 microseconds, and whether they can be deleted. A process remembers for a
-- while that a lane has a name, and $3 must be well above that time. So a lane is marked first. It is deleted once it
-- has been idle for that long and every transaction that may have relied on its row has ended.
select a.id, a.idle, pg_catalog.bool_or(l.idle_at is not null),
  pg_catalog.bool_or(l.idle_at is null),
  coalesce(pg_catalog.bool_or(
    l.idle_xid is null and l.idle_at <= clock_timestamp() - $3::float8 * interval '1 us'), false),
  pg_catalog.bool_and(coalesce(l.idle_xid < pg_snapshot_xmin(pg_current_snapshot()), false))
from (
  select u.id, {is_idle} as idle
  from (select distinct y.id from tusk.lane y where y.id > $1 order by y.id limit $2) u offset 0) a
join tusk.lane l on l.id = a.id
group by a.id, a.idle
order by a.id

-- name: wake_lanes
update tusk.lane l set idle_at = null, idle_xid = null where l.id = any($1::bigint[]) and l.idle_at is not null

-- name: mark_lanes
-- Records a transaction in those of lanes $1 that have been idle for $2 microseconds.
update tusk.lane l set idle_xid = pg_current_xact_id()
where l.id = any($1::bigint[]) and l.idle_xid is null and l.idle_at <= clock_timestamp() - $2::float8 * interval '1 us'

-- name: idle_lanes
update tusk.lane l set idle_at = clock_timestamp() where l.id = any($1::bigint[]) and l.idle_at is null

-- name: is_idle
select {is_idle} from (select $1::bigint as id) u

-- name: forget_lane
delete from tusk.lane l where l.id = $1 and l.idle_xid is not null

-- name: forget_positions
delete from tusk.lane_position p where p.lane = $1

-- name: forget_tally
with gone as (delete from tusk.lane_tally a where a.lane = $1 returning a.added)
update tusk.catalogue_end e set added = e.added - g.added from gone g
