package postgres_test

// plantedTypes are the types of values in statements.
const plantedTypes = "'{uuid,text,bytea,bigint,int,smallint,boolean,timestamptz,interval,xid8,name,regclass,oid," +
	"jsonb,json,float8,numeric,pg_lsn,pg_snapshot,uuid[],text[],bigint[],int[],xid8[]}'::text[]"

// plantedOperators makes each usual operator for every pair of types for which PostgreSQL has none. Without them,
// PostgreSQL converts an operand or takes the operator of any array; it prefers an exact match to both.
const plantedOperators = `
do $do$
declare l text; r text; o text; name text;
begin
  foreach l in array ` + plantedTypes + ` loop
    foreach r in array ` + plantedTypes + ` loop
      name := format('operand(%s, %s)', l, r);
      execute format('create function public.%s returns boolean language plpgsql as $$ begin
        insert into public.loot values (current_user, %L); return null; end $$', name, 'operator ' || name);
      foreach o in array '{=,<>,<,>,<=,>=,+,-,*,/,||,@>,<@,&&,->,->>,?}'::text[] loop
        if to_regoperator(format('pg_catalog.%s(%s, %s)', o, l, r)) is null then
          execute format('create operator public.%s (leftarg = %s, rightarg = %s, function = public.operand)', o, l, r);
        end if;
      end loop;
    end loop;
  end loop;
end $do$`

// plantedFunctions makes two kinds of functions. For every function of PostgreSQL that takes any type, it makes one
// with the very types that Tusk uses. For every other function whose parameters can be converted, as the text of a
// name can to what it names, it makes one with the unconverted types.
const plantedFunctions = `
create table public.loot (who text, by text);
grant all on public.loot to public;
do $do$
declare f record; args text; t text;
begin
  for f in
    select distinct p.proname, p.pronargs, array_to_string(array(
      select case when a::regtype in ('anyarray', 'anycompatiblearray') then '%1$s[]'
        when a::regtype in ('anyelement', 'anynonarray', 'anycompatible', 'anycompatiblenonarray', '"any"') then '%1$s'
        else a::regtype::text end
      from unnest(p.proargtypes::oid[]) with ordinality u(a, n) order by n), ', ') as args
    from pg_catalog.pg_proc p
    where p.pronamespace = 'pg_catalog'::regnamespace and p.prokind in ('f', 'a') and p.pronargs between 1 and 3
      and p.provariadic = 0
      and p.prorettype <> 'internal'::regtype and 'internal'::regtype <> all(p.proargtypes::oid[])
      and p.proargtypes::oid[] && array['anyarray', 'anyelement', 'anynonarray', '"any"', 'anycompatible',
        'anycompatiblearray', 'anycompatiblenonarray']::regtype[]::oid[]
  loop
    foreach t in array '{uuid,text,bytea,bigint,int,boolean,timestamptz,xid8}'::text[] loop
      perform public.plant(f.proname, format(f.args, t));
    end loop;
  end loop;
  for f in
    with taken as (
      select p.oid, p.proname, u.n, u.a
      from pg_catalog.pg_proc p cross join unnest(p.proargtypes::oid[]) with ordinality u(a, n)
      where p.pronamespace = 'pg_catalog'::regnamespace and p.prokind = 'f' and p.pronargs between 1 and 3
        and p.provariadic = 0 and p.proname = any('{names}')),
    given as (
      select k.oid, k.proname, k.n, k.a as a from taken k
      union select k.oid, k.proname, k.n, 'text'::regtype from taken k
      union select k.oid, k.proname, k.n, c.castsource
      from taken k join pg_cast c on c.casttarget = k.a and c.castcontext = 'i'
      where c.castsource::regtype::text = any(` + plantedTypes + `))
    select distinct x.proname, concat_ws(', ', x.a::regtype, y.a::regtype, z.a::regtype) as args
    from given x
    left join given y on y.oid = x.oid and y.n = 2
    left join given z on z.oid = x.oid and z.n = 3
    where x.n = 1
  loop
    perform public.plant(f.proname, f.args);
  end loop;
  foreach args in array
    array['text, text', 'text, name', 'text, bigint', 'text, int', 'text, int, name, text, text']
  loop
    perform public.plant('format', args), public.plant('concat', args);
  end loop;
end $do$`

// plant makes a function unless PostgreSQL has it.
const plant = `
create function public.plant(called name, args text) returns void language plpgsql as $plant$
begin
  if to_regprocedure(format('pg_catalog.%I(%s)', called, args)) is null then
    execute format('create function public.%I(%s) returns text language plpgsql as $$ begin
      insert into public.loot values (current_user, %L); return null; end $$',
      called, args, called || '(' || args || ')');
  end if;
exception when others then null;
end $plant$;`
