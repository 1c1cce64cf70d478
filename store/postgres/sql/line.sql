-- Tasks that join a line are stored in line_1 or line_2. Once the table in use has grown, the other one is used, and
-- the first is truncated after its last task has gone.

-- name: line_table
-- Where new tasks get in line: in line_1, line_2 or, while an older program might run that knows neither, in waiting.
select {line_table}

-- name: next_line_table
select pg_catalog.nextval('tusk.line_table')

-- name: line_tables
-- The answer of line_table, the sizes of both tables in bytes, with large args, and whether this role may truncate
-- them.
select {line_table},
  (select pg_catalog.pg_relation_size(c.oid) + pg_catalog.pg_relation_size(c.reltoastrelid) from pg_class c
   where c.oid = 'tusk.line_1'::regclass::oid),
  (select pg_catalog.pg_relation_size(c.oid) + pg_catalog.pg_relation_size(c.reltoastrelid) from pg_class c
   where c.oid = 'tusk.line_2'::regclass::oid),
  {may_truncate}

-- name: left_in_line
-- How many tasks are in a table, up to $1, and the bytes of their args.
select count(*), coalesce(sum(x.size), 0)::bigint
from (select octet_length(w.args) as size from tusk.{from} w limit $1) x

-- name: lock_line
-- No task is locked, changed or added meanwhile, so nobody can miss one that moves.
lock table tusk.{from} in exclusive mode

-- name: lock_whole_line
lock table tusk.{from} in access exclusive mode

-- name: look_briefly
-- If a table could not be truncated for long, the look for a task in it takes long, during which all others wait.
select pg_catalog.set_config('statement_timeout', '250ms', true)

-- name: empty_line
-- Truncates a table that has no task. pg_dump may lock the table long after it took its snapshot. If the table was
-- truncated in between, the dump would lack its tasks.
do $$ begin
  if not exists (select from tusk.{from}) and not exists (
    select from pg_catalog.pg_stat_activity a
    where a.datname = pg_catalog.current_database() and pg_catalog.starts_with(a.application_name, 'pg_dump')) then
    truncate tusk.{from};
  end if;
end $$

-- name: wait_for_line
-- All others wait for whoever locks a table. So the transaction neither waits for a standby, nor stays open for long if
-- the program is suspended. It is repeated if it is lost in a crash.
select pg_catalog.set_config('lock_timeout', '50ms', true),
  pg_catalog.set_config('synchronous_commit', 'off', true),
  pg_catalog.set_config('idle_in_transaction_session_timeout', '10s', true)

-- name: move_line
-- Moves up to $1 tasks, and no further ones once their args have $2 bytes. Returns how many. A task stays if the other
-- table has one with the same id.
with gone as (
  delete from tusk.{from} w where w.ctid = any(array(
    select y.place
    from (
      select x.place, x.id, sum(x.size) over (rows unbounded preceding) - x.size as above
      from (select v.ctid as place, v.id, octet_length(v.args) as size from tusk.{from} v limit $1) x) y
    where y.above < $2 and not exists (select from tusk.{line} z where z.id = y.id)))
  returning w.*),
moved as (insert into tusk.{line} select g.* from gone g)
select count(*) from gone
