-- name: at_home
-- And whether this role may look at the sequence beside. To a role that may not, some versions of
-- PostgreSQL say that nothing is beside leases.
select tusk_fn.at_home() and tusk_fn.seen(), pg_catalog.has_sequence_privilege('tusk.beside', 'select, usage')

-- name: rebase
select tusk_fn.rebase()

-- name: unfinished
select count(*) from tusk_fn.unfinished()

-- name: oldest_program
select oldest_program from tusk.server

-- name: analyze
-- A restored database has no statistics, and what rebases it is planned by them.
do $$
declare
  _name text;
begin
  set local search_path = pg_catalog, pg_temp;
  for _name in
    select c.oid::regclass::text from pg_catalog.pg_class c
    where c.relkind in ('r', 'p')
      and c.relnamespace = (select l.relnamespace from pg_catalog.pg_class l where l.oid = 'tusk.log'::regclass)
  loop
    execute 'analyze ' || _name;
  end loop;
end $$
