-- name: tidy
call tusk.tidy($1, $2, $3)

-- name: add_segment
select coalesce(tusk.add_segment($1, $2), '')

-- name: spent_segment
select coalesce(parent, ''), coalesce(name, ''), coalesce(stage, '') from tusk.spent_segment()

-- name: forget_segment
with part as (delete from tusk.segment_part where name = $1)
delete from tusk.segment where name = $1

-- name: take_stats
-- Rows that come alone are left for company.
delete from tusk.stat x
where x.ctid = any(array(select y.ctid from tusk.stat y where not y.folded order by y.at limit $1 for update skip locked))
  and (select count(*) from (select from tusk.stat y where not y.folded limit 2) two) = 2
returning x.at, x.stats

-- name: put_stats
insert into tusk.stat (at, stats, folded)
select x.at, x.stats, true from unnest($1::timestamptz[], $2::bytea[]) x(at, stats)
