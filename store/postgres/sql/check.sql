-- name: server
select current_setting('server_version_num')::int, pg_is_in_recovery(), current_setting('fsync'), current_setting('full_page_writes'),
  current_setting('synchronous_commit'), current_setting('data_sync_retry', true), current_setting('default_transaction_isolation'),
  current_setting('max_connections')::int, pg_backend_pid(), current_setting('default_transaction_read_only')

-- name: may_work
-- Whether this role has the rights of one that works; and schemas in which anybody may
-- create what this session would find.
select coalesce(has_sequence_privilege(to_regclass('tusk.beside'), 'select'), true),
  coalesce((select string_agg(quote_ident(x.n), ', ') from pg_catalog.unnest(current_schemas(false)) x(n) where has_schema_privilege('public', x.n, 'create')), '')
