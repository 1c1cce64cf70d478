-- name: tidy
call tusk_fn.tidy($1, $2, $3)

-- name: name_lost_lanes
select tusk_fn.name_lost_lanes($1)

-- name: forget_lanes
select coalesce(tusk_fn.forget_lanes($1, $2, $3, $4), 0)

-- name: add_segment
select coalesce(tusk_fn.add_segment($1, $2), '')

-- name: drop_segment
select tusk_fn.drop_segment($1)

-- name: stat_end
select e.upto::text::bigint, pg_current_snapshot()::text from tusk.stat_end e for update

-- name: next_stats
-- Of flushes from xid $1 on that are visible in snapshot $4, about $2 of them, once there
-- are $3; and of those that were written late.
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
