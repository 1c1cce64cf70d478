-- The functions of each version of the program are in a schema of their own. Here, and in the program's statements, it
-- is called tusk_fn.

-- Records that this program runs. It waits for no lock.
create function tusk_fn.seen() returns text language sql security definer set search_path = pg_catalog, pg_temp
  set jit = off as $$
  update tusk.program p set seen_at = clock_timestamp()
  where p.name = (
    select x.name from tusk.program x
    where x.name = 'tusk_fn' and x.seen_at < clock_timestamp() - interval '1 hour'
      and current_setting('transaction_isolation') = 'read committed' for update skip locked)
  returning p.name
$$;

-- Creates what users call by name (tusk.enqueue, tusk.find and the view tusk.tasks) and the trigger for ends in users'
-- transactions. They call the functions of this program.
create function tusk_fn.publish() returns void language plpgsql set jit = off as $$
begin
  begin
    create or replace view tusk.tasks as select * from tusk_fn.tasks;
  exception when invalid_table_definition then -- another program has published a view with columns that this one lacks
    drop function tusk.find(uuid);
    drop view tusk.tasks;
    create view tusk.tasks as select * from tusk_fn.tasks;
  end;
  create or replace function tusk.find(id uuid) returns setof tusk.tasks language sql stable
    set search_path = pg_catalog, pg_temp as $find$
    select * from tusk_fn.find($1)
  $find$;
  -- With the rights of the schema's owner, so that callers need none of their own.
  create or replace function tusk.enqueue(kind text, args json default '{}', queue text default 'default',
    priority int default 0, run_at timestamptz default null, key text default null, tenant text default null,
    tags text[] default null)
  returns uuid language sql security definer set search_path = pg_catalog, pg_temp as $enqueue$
    select tusk_fn.enqueue(kind, args, queue, priority, run_at, key, tenant, tags)
  $enqueue$;
  create or replace function tusk.tell_finished() returns trigger language plpgsql
    set search_path = pg_catalog, pg_temp as $tell$
  begin
    perform tusk_fn.tell_ended(array[s.id], case when s.state = 6 then '{}'::uuid[] else array[s.id] end)
    from tusk_fn.states_of(array[new.id]) s where s.state in (6, 7, 8);
    return null;
  end $tell$;
  if not exists (select from pg_trigger t where t.tgrelid = 'tusk.finished'::regclass
    and t.tgname = 'finished_tell') then
    create constraint trigger finished_tell after insert on tusk.finished
    deferrable initially deferred for each row
    when (pg_relation_size('tusk.open_need') > 0)
    execute function tusk.tell_finished();
  end if;
  revoke execute on routine tusk.enqueue, tusk.find, tusk.tell_finished from public;
  update tusk.program p set published = p.name = 'tusk_fn' where p.published <> (p.name = 'tusk_fn');
  perform tusk_fn.grant_rights();
end $$;

-- Grants the functions that only read to roles that may read the log, and all functions except publish and grant_rights
-- to roles that may write to it.
create function tusk_fn.grant_rights() returns void language plpgsql set jit = off as $$
declare
  _to  text;
  _all boolean;
begin
  for _to, _all in
    select case a.grantee when 0 then 'public' else a.grantee::regrole::text end, bool_or(a.privilege_type = 'INSERT')
    from pg_class c cross join aclexplode(c.relacl) a
    where c.oid = 'tusk.log'::regclass and a.grantee <> c.relowner and a.privilege_type in ('SELECT', 'INSERT')
    group by a.grantee
  loop
    execute format('grant usage on schema tusk_fn to %s', _to);
    execute format('grant select on all tables in schema tusk_fn to %s', _to);
    execute format('grant select on tusk.tasks to %s', _to);
    execute format('grant execute on function tusk.find to %s', _to);
    if _all then
      execute format('grant execute on all routines in schema tusk_fn to %s', _to);
      execute format('grant execute on function tusk.enqueue to %s', _to);
      execute format('revoke execute on function tusk_fn.publish, tusk_fn.grant_rights from %s', _to);
    else
      execute format('grant execute on function %s to %s', (
        select string_agg(p.oid::regprocedure::text, ', ') from pg_proc p
        where p.pronamespace = 'tusk_fn'::regnamespace and (p.provolatile in ('i', 's') or p.proname = 'seen')), _to);
    end if;
  end loop;
end $$;

-- Removes the functions of programs that have no living worker and have not run for the time _unseen. Once no program
-- is older than version 13, none may be installed again, because it would not find tasks in line_1 and line_2.
create function tusk_fn.drop_programs(_term bigint, _unseen interval) returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off set lock_timeout = '1s' as $$
declare
  _name text;
begin
  for _name in
    select p.name from tusk.program p left join pg_namespace n on n.nspname = p.name
    where not p.published and p.name <> 'tusk_fn' and p.seen_at < clock_timestamp() - _unseen
      and not exists (select from tusk.worker w where not w.dead and w.program = p.name)
      and (n.oid is null or pg_has_role(n.nspowner, 'usage'))
  loop
    perform tusk_fn.hold_lead(_term);
    begin
      perform tusk_fn.drop_program(_name);
    exception when dependent_objects_still_exist then -- such as a view of a user: the functions stay
    end;
  end loop;
  update tusk.server s set oldest_program = 13
  where s.oldest_program < 13 and not exists (select from tusk.program p where p.version < 13);
end $$;

-- Drops the functions in reverse order of their creation. It does not use cascade, so that objects of others that
-- depend on them stay.
create function tusk_fn.drop_program(_name text) returns void language plpgsql as $$
declare
  _what text;
begin
  for _what in
    select x.what from (
      select p.oid, format('routine %s', p.oid::regprocedure) as what from pg_proc p
        where p.pronamespace = to_regnamespace(quote_ident(_name))
      union all
      select c.oid, format('%s %s', case c.relkind when 'v' then 'view' else 'type' end, c.oid::regclass)
      from pg_class c where c.relnamespace = to_regnamespace(quote_ident(_name)) and c.relkind in ('v', 'c')) x
    order by x.oid desc
  loop
    execute 'drop ' || _what;
  end loop;
  execute format('drop schema if exists %I', _name);
  delete from tusk.program p where p.name = _name;
end $$;
