-- name: server
select current_setting('server_version_num')::int, pg_is_in_recovery(), current_setting('fsync'),
  current_setting('full_page_writes'), current_setting('synchronous_commit'),
  current_setting('data_sync_retry', true), current_setting('default_transaction_isolation'),
  current_setting('max_connections')::int, pg_backend_pid(), current_setting('default_transaction_read_only')

-- name: missing_rights
-- Statements that give this role what it lacks of the rights that roles.sql gives to {role}_work. Inserts into identity
-- columns need no right on their sequences, whose names end in _seq.
select pg_catalog.concat_ws('; ', (
    select pg_catalog.string_agg(
      pg_catalog.format('grant %s %s to %I', m.may, m.names, current_user::text), '; ' order by m.no)
    from (
      select r.no, r.may,
        pg_catalog.string_agg(pg_catalog.format('tusk.%I', c.relname::text), ', ' order by c.relname) as names
      from pg_catalog.pg_class l
      join pg_catalog.pg_class c on c.relnamespace = l.relnamespace and c.relowner = l.relowner
      cross join pg_catalog.unnest('{usage on sequence,select on,insert on,update on,delete on,truncate on}'::text[])
        with ordinality r(may, no)
      where l.oid = 'tusk.log'::regclass::oid and case
        when c.relkind = 'S' then r.no = 1::bigint and pg_catalog.right(c.relname::text, 4) <> '_seq'
          and not pg_catalog.has_sequence_privilege(c.oid, 'usage')
        when c.relkind in ('r', 'p', 'v') and pg_catalog.left(c.relname::text, 5) <> 'task_' and (r.no = 2::bigint
          or r.no between 3::bigint and 5::bigint and c.relkind <> 'v'
            and c.relname not in ('migration', 'server', 'program')
          or r.no = 6::bigint and c.relname in ('line_1', 'line_2'))
          then not pg_catalog.has_table_privilege(c.oid, pg_catalog.split_part(r.may, ' ', 1))
        else false end
      group by r.no, r.may) m),
  case when not pg_catalog.has_schema_privilege('tusk_fn', 'usage')
      or not exists (
        select from pg_catalog.pg_proc p
        join pg_catalog.pg_namespace n on n.oid = p.pronamespace and n.nspname = 'tusk_fn'
        where p.proname = 'hold_lead' and pg_catalog.has_function_privilege(p.oid, 'execute'))
    then 'select tusk_fn.grant_rights()' end)

-- name: open_schemas
-- Schemas in this session's search path in which any role may create objects.
select coalesce(string_agg(pg_catalog.quote_ident(x.n), ', '), '')
from pg_catalog.unnest(current_schemas(false)) x(n)
where pg_catalog.has_schema_privilege('public', x.n, 'create')
