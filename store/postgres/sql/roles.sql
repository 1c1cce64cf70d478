-- name: roles
-- Four roles. None can log in until you permit it: alter role … login password '…'
do $$
declare
  _role text;
begin
  foreach _role in array array['{role}_migrate', '{role}_work', '{role}_enqueue', '{role}_read'] loop
    if not exists (select from pg_catalog.pg_roles r where r.rolname operator(pg_catalog.=) _role) then
      execute pg_catalog.format('create role %I nologin', _role);
    end if;
    -- Tusk's statements name their schema. Other names are not looked up in schemas of others.
    execute pg_catalog.format('alter role %I set search_path = pg_catalog, pg_temp', _role);
    execute pg_catalog.format('grant usage on schema {schema} to %I', _role);
  end loop;
end $$;;

-- {role}_migrate owns the schema and all objects in it.
do $$
declare
  _home text[] := array(select p.name from {schema}.program p) operator(pg_catalog.||) array['{schema}'];
  _what record;
begin
  set local search_path = pg_catalog, pg_temp;
  execute format('grant create on database %I to {role}_migrate', current_database());
  for _what in
    with home as (select n.oid, n.nspname from pg_namespace n where n.nspname = any(_home))
    select case c.relkind when 'v' then 'view' when 'S' then 'sequence'
      else 'table' end as kind, c.oid::regclass::text as name
    from pg_class c join home h on h.oid = c.relnamespace
    where c.relkind in ('r', 'p', 'v', 'S')
      and not exists (select from pg_depend d where d.objid = c.oid and d.deptype in ('a', 'i') and c.relkind = 'S')
    union all
    select 'routine', p.oid::regprocedure::text from pg_proc p join home h on h.oid = p.pronamespace
    union all
    select 'schema', quote_ident(h.nspname) from home h
  loop
    execute format('alter %s %s owner to {role}_migrate', _what.kind, _what.name);
  end loop;
end $$;;

-- {role}_work is for tusk work and tusk serve, and for programs with the library.
grant select, insert, update, delete on all tables in schema {schema} to {role}_work;;

-- The leader truncates these tables in turn.
grant truncate on {schema}.line_1, {schema}.line_2 to {role}_work;;

grant usage, select on all sequences in schema {schema} to {role}_work;;

-- It may neither migrate nor rebase.
revoke insert, update, delete on {schema}.migration, {schema}.server, {schema}.program from {role}_work;;

-- {role}_enqueue may enqueue by SQL, and nothing else.
grant execute on function {schema}.enqueue(text, json, text, int, timestamptz, text, text, text[]) to {role}_enqueue;;

-- {role}_read may read everything, and may call no function that changes or locks anything.
grant select on all tables in schema {schema} to {role}_read;;

-- Roles that may read or write the log may call the functions that do so. The same is true of
-- functions that tusk migrate up installs later.
do $$
declare
  _name text;
begin
  for _name in select p.name from {schema}.program p where pg_catalog.to_regnamespace(p.name) is not null loop
    execute pg_catalog.format('select %I.grant_rights()', _name);
  end loop;
end $$;;
