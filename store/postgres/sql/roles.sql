-- name: roles
-- Four roles. None can log in before it is told to: alter role … login password '…'
do $$
declare
  _role text;
begin
  foreach _role in array array['{role}_migrate', '{role}_work', '{role}_enqueue', '{role}_read'] loop
    if not exists (select from pg_catalog.pg_roles r where r.rolname operator(pg_catalog.=) _role) then
      execute pg_catalog.format('create role %I nologin', _role);
    end if;
    -- All that Tusk asks names its schema; nothing else is looked for in schemas of others.
    execute pg_catalog.format('alter role %I set search_path = pg_catalog, pg_temp', _role);
    execute pg_catalog.format('grant usage on schema {schema} to %I', _role);
  end loop;
end $$;;

-- {role}_migrate owns what is in the schema.
do $$
declare
  _what record;
begin
  execute pg_catalog.format('grant create on database %I to {role}_migrate', pg_catalog.current_database());
  for _what in
    select case c.relkind when 'v' then 'view' when 'S' then 'sequence' else 'table' end as kind, c.oid::pg_catalog.regclass::text as name
    from pg_catalog.pg_class c
    where c.relnamespace operator(pg_catalog.=) '{schema}'::pg_catalog.regnamespace and c.relkind in ('r', 'p', 'v', 'S')
      and not exists (select from pg_catalog.pg_depend d where d.objid operator(pg_catalog.=) c.oid and d.deptype in ('a', 'i') and c.relkind = 'S')
    union all
    select 'routine', p.oid::pg_catalog.regprocedure::text
    from pg_catalog.pg_proc p where p.pronamespace operator(pg_catalog.=) '{schema}'::pg_catalog.regnamespace
  loop
    execute pg_catalog.format('alter %s %s owner to {role}_migrate', _what.kind, _what.name);
  end loop;
end $$;;

alter schema {schema} owner to {role}_migrate;;

-- {role}_work is for tusk work and tusk serve, and for programs with the library.
grant select, insert, update, delete on all tables in schema {schema} to {role}_work;;

grant usage, select on all sequences in schema {schema} to {role}_work;;

grant execute on all routines in schema {schema} to {role}_work;;

-- It neither migrates nor rebases.
revoke execute on function {schema}.rebase(), {schema}.first_segments() from {role}_work;;

revoke insert, update, delete on {schema}.migration, {schema}.server from {role}_work;;

-- {role}_enqueue may enqueue by SQL, and nothing else.
grant execute on function {schema}.enqueue(text, json, text, int, timestamptz, text, text, text[]) to {role}_enqueue;;

-- {role}_read may look at everything, and calls nothing that changes or locks.
grant select on all tables in schema {schema} to {role}_read;;

do $$
declare
  _name text;
begin
  for _name in
    select p.oid::pg_catalog.regprocedure::text from pg_catalog.pg_proc p
    where p.pronamespace operator(pg_catalog.=) '{schema}'::pg_catalog.regnamespace and p.provolatile in ('i', 's')
  loop
    execute pg_catalog.format('grant execute on function %s to {role}_read', _name);
  end loop;
end $$;;
