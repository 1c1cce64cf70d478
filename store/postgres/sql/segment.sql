-- name: tidy
call tusk.tidy($1, $2, $3)

-- name: add_segment
select coalesce(tusk.add_segment($1, $2), '')

-- name: spent_segment
select coalesce(parent, ''), coalesce(name, ''), coalesce(stage, '') from tusk.spent_segment()

-- name: forget_segment
-- What the catalogue says of it goes, too.
with part as (delete from tusk.segment_part where name = $1 returning segment, queues),
whole as (delete from tusk.segment where name = $1 returning hi),
gone as (
  select w.hi, null::bigint[] as queues, '{}'::bigint[] as others from whole w
  union all
  select s.hi, p.queues,
    array(select unnest(x.queues) from tusk.segment_part x where x.segment = p.segment and x.name <> $1 and p.queues is null)
  from part p join tusk.segment s on s.name = p.segment)
delete from tusk.catalogue c using gone g
where c.hi <= g.hi and c.lo >= coalesce((select s.hi from tusk.segment s where s.hi < g.hi order by s.hi desc limit 1), '0')
  and (g.queues is null or c.lane >> 16 = any(g.queues)) and c.lane >> 16 <> all(g.others)

-- name: take_stats
-- Rows that come alone are left for company.
delete from tusk.stat x
where x.ctid = any(array(select y.ctid from tusk.stat y where not y.folded order by y.at limit $1 for update skip locked))
  and (select count(*) from (select from tusk.stat y where not y.folded limit 2) two) = 2
returning x.at, x.stats

-- name: put_stats
insert into tusk.stat (at, stats, folded)
select x.at, x.stats, true from unnest($1::timestamptz[], $2::bytea[]) x(at, stats)
