-- name: add_segment
select coalesce(tusk_fn.add_segment($1, $2), '')

-- name: loose_segment
-- A table that is already detached from the log: its parent and its name.
select x.parent, x.name
from (select 'log' as parent, y.name from tusk.segment y union all select y.segment, y.name from tusk.segment_part y) x
where not exists (
  select from pg_inherits i where i.inhrelid = pg_catalog.to_regclass(pg_catalog.format('tusk.%I', x.name::text))::oid)
limit 1

-- name: old_segments
-- The tables of the log that get no more rows, oldest first: the parent and the name of each, the transaction up to
-- which it has rows, its queues (null means all except the others), the others, and whether it is an empty parent.
select coalesce(p.segment, 'log'), coalesce(p.name, s.name), s.hi::text, p.queues,
  case when p.name is not null and p.queues is null
    then array(select pg_catalog.unnest(x.queues) from tusk.segment_part x where x.segment = s.name)
    else '{}' end,
  p.name is null and exists (
    select from pg_partitioned_table t
    where t.partrelid = pg_catalog.to_regclass(pg_catalog.format('tusk.%I', s.name::text))::oid)
from tusk.segment s
left join tusk.segment_part p on p.segment = s.name
where s.hi <= pg_snapshot_xmin(pg_current_snapshot())
  and (select count(*) from tusk.segment y where y.hi is not null) > 1
order by s.hi

-- name: is_spent
-- Whether no lease and no completed task of queues $2 (null means all except $3) refers to a transaction below $1, and
-- every lane is past it.
select not exists (
    select from tusk.lease l where l.lo < $1::text::xid8 and ($2::bigint[] is null or l.lane >> 16 = any($2))
      and l.lane >> 16 <> all($3::bigint[]))
  and not exists (
    select from tusk.outcome o where o.lo < $1::text::xid8 and ($2::bigint[] is null or o.lane >> 16 = any($2))
      and o.lane >> 16 <> all($3))
  and not exists (
    select from (
      select distinct l.id from tusk.lane l
      where ($2::bigint[] is null or l.id >> 16 = any($2)) and l.id >> 16 <> all($3)) l
    left join lateral (select p.done from tusk.lane_position p where p.lane = l.id order by p.no desc
      limit 1) p on true
    where pg_snapshot_xmin(coalesce(p.done, '1:1:')) < $1::text::xid8
      and exists (select from tusk.log t where t.lane = l.id and t.xid < $1::text::xid8
        and tusk_fn.unclaimed(t.lane, t.xid, tusk_fn.last_n(t.n, t.packed))))

-- name: drop_segment
select tusk_fn.drop_segment($1, $2, $3)

-- name: forget_segment
-- Deletes the row of table $1 of the log, and its entries in the catalogue, if the table has been dropped.
with part as (
  delete from tusk.segment_part p
  where p.name = $1::text and pg_catalog.to_regclass(pg_catalog.format('tusk.%I', $1)) is null
  returning p.segment, p.queues),
whole as (
  delete from tusk.segment s
  where s.name = $1 and pg_catalog.to_regclass(pg_catalog.format('tusk.%I', $1)) is null
  returning s.hi),
gone as (
  select w.hi, null::bigint[] as queues, '{}'::bigint[] as others from whole w
  union all
  select s.hi, p.queues,
    array(select pg_catalog.unnest(x.queues) from tusk.segment_part x where x.segment = p.segment and x.name <> $1
      and p.queues is null)
  from part p join tusk.segment s on s.name = p.segment)
delete from tusk.catalogue c using gone g
where c.hi <= g.hi and c.lo >= coalesce((select s.hi from tusk.segment s where s.hi < g.hi order by s.hi desc
    limit 1), '0')
  and (g.queues is null or c.lane >> 16 = any(g.queues)) and c.lane >> 16 <> all(g.others)

-- name: stat_end
select e.upto::text::bigint, pg_current_snapshot()::text from tusk.stat_end e for update

-- name: next_stats
-- The statistics of about $2 flushes from xid $1 on that are visible in snapshot $4, once there are $3 of them, and
-- those of flushes that were written late.
(select o.xid::text::bigint, o.finished_at, o.stats from tusk.outcome o
where o.stats is not null
  and o.xid = any(array(select x from tusk.stat_end e cross join pg_catalog.unnest(e.late) x
    where pg_visible_in_snapshot(x, $4::text::pg_snapshot))))
union all
(select o.xid::text::bigint, o.finished_at, o.stats from tusk.outcome o
where o.stats is not null and o.xid >= $1::bigint::text::xid8 and pg_visible_in_snapshot(o.xid, $4::text::pg_snapshot)
  and (select count(*) from (
    select from tusk.outcome x
    where x.stats is not null and x.xid >= $1::bigint::text::xid8
      and pg_visible_in_snapshot(x.xid, $4::text::pg_snapshot)
    limit $3) few) = $3
order by o.xid
fetch first $2 rows with ties)

-- name: loose_stats
delete from tusk.stat x
where x.ctid = any(array(select y.ctid from tusk.stat y where y.minutes = 0 order by y.at limit $1
  for update skip locked))
returning x.at, x.stats

-- name: take_stats
delete from tusk.stat x using unnest($1::timestamptz[], $2::int[]) s(at, minutes)
where x.minutes = s.minutes and x.at = s.at
returning x.at, x.minutes, x.stats

-- name: put_stats
insert into tusk.stat (at, minutes, stats)
select s.at, s.minutes, s.stats from unnest($1::timestamptz[], $2::int[], $3::bytea[]) s(at, minutes, stats)

-- name: end_stats
update tusk.stat_end e
set upto = $1::bigint::text::xid8,
  late = array(
    select x from pg_catalog.unnest(e.late) x where not pg_visible_in_snapshot(x, $2::text::pg_snapshot)
    union all
    select x from pg_snapshot_xip($2::text::pg_snapshot) x where x >= e.upto and x < $1::bigint::text::xid8)
where e.upto <> $1::bigint::text::xid8 or pg_catalog.cardinality(e.late) > 0
