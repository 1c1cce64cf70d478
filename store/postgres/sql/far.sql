-- name: hear
select h from tusk_fn.hear($1, $2) h

-- name: needed
-- A row of nothing says that tasks of lane $3 wait for their time.
select n.id, n.state, n.announced from tusk_fn.needed($1, $2) n
union all
select null, null, null where exists (select from tusk.waiting w where w.lane = $3 and w.state = 1 and w.line is null)

-- name: deliver
select d::text from tusk_fn.deliver($1) d

-- name: in_flight
select pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint from pg_current_snapshot() s

-- name: end_process
-- Whether there is no process $1 that began before $3. One that is there, of this role, is told to end. Nobody knows
-- behind a pooler, where this process is not the $2 that the client was told.
select pg_catalog.count(case when a.usesysid = r.oid then pg_terminate_backend(a.pid) else true end) = 0
from pg_stat_activity a, pg_roles r
where a.pid = $1::int and a.pid <> pg_backend_pid() and pg_backend_pid() = $2::int and a.datname = current_database()
  and coalesce(a.backend_start <= $3::timestamptz, true) and r.rolname = current_user

-- name: read_only
select pg_is_in_recovery() or current_setting('transaction_read_only')::bool

-- name: running
select current_database(), pg_postmaster_start_time()

-- name: prepared
select p.gid from pg_prepared_xacts p where p.database = current_database()
