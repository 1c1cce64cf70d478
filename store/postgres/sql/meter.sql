-- name: wal
select pg_current_wal_insert_lsn() - '0/0'::pg_lsn

-- name: flush_statistics
-- Without this, a session reports its changes only at the end of a transaction, at most once a second, or when it has
-- been idle for ten seconds.
select pg_stat_force_next_flush()

-- name: dead_rows
-- The number of dead rows that were ever made. n_dead_tup cannot be used, because an autovacuum resets it, and it is an
-- estimate afterwards. Rows that were updated within their page do not count, because they disappear without a vacuum.
-- Of the tables of lines, only the present dead rows count, because truncation removes them. Leases do not count:
-- there is one for each claim, whatever the number of tasks.
select coalesce(sum(case when relname like 'line\_%' then n_dead_tup else n_tup_del + n_tup_upd - n_tup_hot_upd end),
  0)::bigint
from pg_stat_user_tables
where schemaname = $1
  and (relname like 'task\_%' or relname in ('outcome', 'lane_position', 'waiting', 'line_1', 'line_2', 'held'))

-- name: backend
select pg_backend_pid()
