-- name: installed
-- When the functions of program $1 were installed, or null if they are not.
select (select p.installed_at from tusk.program p where p.name = $1 and to_regnamespace(p.name) is not null)

-- name: is_key_word
-- Whether $1 names no schema yet and would have to be quoted in some statements.
select pg_catalog.to_regnamespace(pg_catalog.quote_ident($1)) is null and exists (
  select from pg_catalog.pg_get_keywords() k where k.word = $1::text and k.catcode <> 'U')

-- name: make_functions
-- The texts of the functions follow. Names that they do not qualify are PostgreSQL's own, whatever the session's search
-- path is.
set local search_path = pg_catalog, pg_temp;
set local lock_timeout = '5s';
drop schema if exists tusk_fn cascade;
create schema tusk_fn;

-- name: add_program
-- $1 program, $2 version of the tables that it needs
insert into tusk.program as p (name, version) values ($1, $2)
on conflict (name) do update set version = least(p.version, excluded.version), seen_at = excluded.seen_at

-- name: has_segments
select exists (select from tusk.segment)

-- name: first_segments
-- Makes the first segments of an empty log.
do $$ declare
  here bigint := pg_catalog.pg_current_xact_id()::text::bigint;
  n    bigint := (select coalesce(max(pg_catalog.substr(s.name, 6)::bigint) + 1, 0) from tusk.segment s);
  lo   text := 'minvalue';
  hi   text;
begin
  set local search_path = pg_catalog, pg_temp;
  delete from tusk.segment_part;
  delete from tusk.segment;
  for i in 0 .. 2 loop
    hi := case when i < 2 then quote_literal(here + (i + 1) * 1000000) else 'maxvalue' end;
    execute format('create table tusk.task_%s partition of tusk.log for values from (%s) to (%s)', n + i, lo, hi);
    execute format('alter table tusk.task_%s replica identity full', n + i);
    insert into tusk.segment (name, hi) values ('task_' || n + i, case when i < 2
      then (here + (i + 1) * 1000000)::text::xid8 end);
    lo := hi;
  end loop;
end $$

-- name: enter_program
-- Publishes the installed functions. If a newer program is installed, it only grants the rights on them.
do $$ begin
  set local search_path = pg_catalog, pg_temp;
  set local lock_timeout = '5s';
  if exists (
    select from tusk.program p join tusk.program q on q.version > p.version where p.name = 'tusk_fn') then
    perform tusk_fn.grant_rights();
  elsif not exists (select from tusk.program p where p.name = 'tusk_fn' and p.published) then
    perform tusk_fn.publish();
  end if;
end $$

-- name: programs_above
-- The programs that need a newer version of the tables than $1.
select coalesce(string_agg(p.name, ' '), '') from tusk.program p where p.version > $1
  and to_regnamespace(p.name) is not null

-- name: newest_program
select p.name from tusk.program p where to_regnamespace(p.name) is not null
  order by p.version desc, p.installed_at desc limit 1

-- name: withdraw
set local search_path = pg_catalog, pg_temp;
set local lock_timeout = '5s';
drop function if exists tusk.find;
drop view if exists tusk.tasks;

-- name: withdraw_all
drop trigger if exists finished_tell on tusk.finished;
drop function if exists tusk.tell_finished, tusk.enqueue;
delete from tusk.program;

-- name: seen
select tusk_fn.seen() where pg_catalog.current_setting('transaction_read_only') = 'off'

-- name: drop_programs
-- $1 term, $2 how long nobody has run them
select tusk_fn.drop_programs($1, $2)
