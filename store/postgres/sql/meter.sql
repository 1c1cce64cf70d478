-- name: wal
select pg_current_wal_insert_lsn() - '0/0'::pg_lsn

-- name: dead_rows
select coalesce(sum(n_dead_tup), 0)::bigint
from pg_stat_user_tables
where schemaname = $1 and (relname like 'task\_%' or relname in ('outcome', 'lane_position', 'waiting', 'held'))

-- name: backend
select pg_backend_pid()
