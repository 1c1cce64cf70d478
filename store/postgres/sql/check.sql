-- name: server
select current_setting('server_version_num')::int, pg_is_in_recovery(), current_setting('fsync'), current_setting('full_page_writes'),
  current_setting('synchronous_commit'), current_setting('data_sync_retry', true), current_setting('default_transaction_isolation'),
  current_setting('max_connections')::int, pg_backend_pid()
