-- Tasks that join a line are stored in line_1 or line_2. Once the table in use has grown, the other one is used, and
-- the first is truncated after its last task has gone.

-- name: line_table
-- Where new tasks get in line: in line_1, line_2 or, while an older program might run that knows neither, in waiting.
select case when exists (select from tusk.program p where p.version < 13) then 0
  else coalesce(pg_catalog.pg_sequence_last_value('tusk.line_table'), 1)::int end

-- name: next_line_table
select pg_catalog.nextval('tusk.line_table')

-- name: line_sizes
-- The sizes of both tables in bytes.
select pg_catalog.pg_relation_size('tusk.line_1'), pg_catalog.pg_relation_size('tusk.line_2')

-- name: left_in_line
-- How many tasks are in a table, up to $1.
select count(*) from (select from tusk.{from} limit $1) x

-- name: empty_line
select tusk_fn.empty_line($1, $2)

-- name: lock_line
-- No task is locked, changed or added meanwhile, so nobody can miss one that moves.
lock table tusk.{from} in exclusive mode

-- name: wait_briefly
select pg_catalog.set_config('lock_timeout', '50ms', true)

-- name: move_line
-- Moves up to $1 tasks.
with gone as (
  delete from tusk.{from} w where w.ctid = any(array(select x.ctid from tusk.{from} x limit $1)) returning w.*)
insert into tusk.{line} select g.* from gone g
