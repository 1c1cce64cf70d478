-- name: wal
select pg_current_wal_insert_lsn() - '0/0'::pg_lsn

-- name: flush_statistics
-- A session tells of its changes when it ends a transaction a second after the last time, or has been idle for ten.
select pg_stat_force_next_flush()

-- name: dead_rows
-- All that were ever made, not n_dead_tup, which an autovacuum sets back and which is an estimate after it. A row that
-- was updated in its page goes without a vacuum.
select coalesce(sum(n_tup_del + n_tup_upd - n_tup_hot_upd), 0)::bigint
from pg_stat_user_tables
where schemaname = $1 and (relname like 'task\_%' or relname in ('outcome', 'lane_position', 'waiting', 'held'))

-- name: backend
select pg_backend_pid()
