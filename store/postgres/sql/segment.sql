-- name: tidy
call tusk.tidy($1, $2, $3)

-- name: add_segment
select coalesce(tusk.add_segment($1, $2), '')

-- name: spent_segment
select coalesce(tusk.spent_segment(), '')

-- name: half_detached
-- A detach that was interrupted leaves its segment invisible.
select coalesce((
  select c.relname from pg_inherits i
  join pg_class c on c.oid = i.inhrelid
  where i.inhparent = 'tusk.task'::regclass and i.inhdetachpending limit 1), '')

-- name: forget_segment
delete from tusk.segment where name = $1
