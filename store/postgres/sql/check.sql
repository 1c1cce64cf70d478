-- name: server
select current_setting('server_version_num')::int, pg_is_in_recovery(), current_setting('fsync'),
  current_setting('full_page_writes'), current_setting('synchronous_commit'),
  current_setting('data_sync_retry', true), current_setting('default_transaction_isolation'),
  current_setting('max_connections')::int, pg_backend_pid(), current_setting('default_transaction_read_only')

-- name: untruncated
-- The name of this role if it may not truncate the tables of lines.
select case when {may_truncate} then '' else pg_catalog.quote_ident(current_user::text) end

-- name: open_schemas
-- Schemas in this session's search path in which any role may create objects.
select coalesce(string_agg(pg_catalog.quote_ident(x.n), ', '), '')
from pg_catalog.unnest(current_schemas(false)) x(n)
where pg_catalog.has_schema_privilege('public', x.n, 'create')
