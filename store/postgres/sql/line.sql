-- Tasks that join a line are stored in line_1 or line_2. Once the table in use has grown, the other one is used, and
-- the first is truncated after its last task has gone.

-- name: line_table
-- Where new tasks get in line: in line_1, line_2 or, while an older program might run that knows neither, in waiting.
select {line_table}

-- name: next_line_table
select pg_catalog.nextval('tusk.line_table')

-- name: line_tables
-- The answer of line_table, and the sizes of both tables in bytes, with large args.
select {line_table},
  (select pg_catalog.pg_relation_size(c.oid) + pg_catalog.pg_relation_size(c.reltoastrelid) from pg_class c
   where c.oid = 'tusk.line_1'::regclass::oid),
  (select pg_catalog.pg_relation_size(c.oid) + pg_catalog.pg_relation_size(c.reltoastrelid) from pg_class c
   where c.oid = 'tusk.line_2'::regclass::oid)

-- name: left_in_line
-- How many tasks are in a table, up to $1, and the bytes of their args.
select count(*), coalesce(sum(x.size), 0)::bigint
from (select octet_length(w.args) as size from tusk.{from} w limit $1) x

-- name: lock_line
-- No task is locked, changed or added meanwhile, so nobody can miss one that moves.
lock table tusk.{from} in exclusive mode

-- name: lock_whole_line
lock table tusk.{from} in access exclusive mode

-- name: empty_line
do $$ begin
  if not exists (select from tusk.{from}) then
    truncate tusk.{from};
  end if;
end $$

-- name: wait_for_line
select pg_catalog.set_config('lock_timeout', '50ms', true)

-- name: move_line
-- Moves up to $1 tasks.
with gone as (
  delete from tusk.{from} w where w.ctid = any(array(select x.ctid from tusk.{from} x limit $1)) returning w.*)
insert into tusk.{line} select g.* from gone g
