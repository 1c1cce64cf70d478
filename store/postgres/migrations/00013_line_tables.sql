-- up
set local lock_timeout = '5s';

-- Tasks that join a line for their turn are stored in line_1 or line_2, of which the leader empties one after the other
-- by truncation. So their grants leave nothing for vacuum. Whoever looks for a task that may not run yet reads unready.
create table tusk.unready (
  like tusk.waiting including defaults,
  -- It is always empty. By this constraint, the planner leaves it out where one of the columns is compared.
  constraint unready_is_empty check (id is null and line is null and tags is null) no inherit
);
alter table tusk.unready alter id drop not null;
alter table tusk.unready replica identity full; -- for statements that delete from it beside a publication of all tables
alter table tusk.waiting inherit tusk.unready;
create sequence tusk.line_table as smallint maxvalue 2 start 2 cycle; -- 1 or 2: where new tasks get in line
do $$
declare
  _name text;
begin
  foreach _name in array array['line_1', 'line_2'] loop
    -- The constraint lets the planner leave out the table where tasks out of line are wanted. A vacuum would hold up
    -- the truncation, and is of use only if that is late or many tasks wait for long.
    execute format('create table tusk.%1$I (constraint %1$s_pkey primary key (id),
      constraint %1$s_waits check (state = 2 and line is not null)) inherits (tusk.unready)
      with (autovacuum_vacuum_threshold = 200000, autovacuum_vacuum_scale_factor = 0,
        autovacuum_analyze_threshold = 200000, autovacuum_analyze_scale_factor = 0,
        autovacuum_vacuum_insert_threshold = 200000, autovacuum_vacuum_insert_scale_factor = 0)', _name);
    execute format('create index %1$s_place on tusk.%1$I
      ((lane >> 16), coalesce(tenant, %2$L), coalesce(partition, %2$L), lane, line, n) where line is not null',
      _name, '');
    execute format('create index %1$s_tags on tusk.%1$I using gin (tags) with (gin_pending_list_limit = 256)
      where tags is not null', _name);
  end loop;
end $$;

-- Whoever may use waiting may use the new tables.
do $$
declare
  _to  text;
  _may text;
begin
  for _to, _may in
    select case a.grantee when 0 then 'public' else a.grantee::regrole::text end, string_agg(a.privilege_type, ', ')
    from pg_class c cross join aclexplode(c.relacl) a
    where c.oid = 'tusk.waiting'::regclass and a.grantee <> c.relowner
    group by a.grantee
  loop
    execute format('grant %s on tusk.unready, tusk.line_1, tusk.line_2 to %s', _may, _to);
    if _may like '%DELETE%' then -- the leader truncates them
      execute format('grant truncate on tusk.line_1, tusk.line_2 to %s', _to);
    end if;
    if _may like '%INSERT%' then
      execute format('grant usage, select on sequence tusk.line_table to %s', _to);
    end if;
  end loop;
end $$;

-- down
set local lock_timeout = '5s';
lock table tusk.line_1, tusk.line_2 in access exclusive mode;
insert into tusk.waiting select * from tusk.line_1;
insert into tusk.waiting select * from tusk.line_2;
drop table tusk.line_1, tusk.line_2;
alter table tusk.waiting no inherit tusk.unready;
drop table tusk.unready;
drop sequence tusk.line_table;
update tusk.server set oldest_program = 2 where oldest_program = 13; -- see drop_programs
