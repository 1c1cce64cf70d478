-- A queue may have many ledgers, and a task may need a task in another one. That task is known here only by its row in
-- far, which has the state that its own ledger has reported.

-- name: hear
-- Stores what other ledgers have reported: tasks $1 are in states $2.
insert into tusk.far (id, state)
select distinct on (x.id) x.id, x.state from unnest($1::uuid[], $2::smallint[]) x(id, state) order by x.id, x.state
on conflict (id) do update set state = excluded.state, heard_at = excluded.heard_at

-- name: forget_far
-- Deletes tasks that nobody has needed or asked for in an hour, except tasks $1.
delete from tusk.far f
where f.ctid = any(array(
  select x.ctid from tusk.far x
  where x.heard_at < clock_timestamp() - interval '1 hour' and x.id <> all($1::uuid[])
    and not exists (select from tusk.open_need o where o.parent = x.id)
  order by x.heard_at limit 100 for update skip locked))

-- name: children
-- The tasks that need one of $1.
select distinct o.child from pg_catalog.unnest($1::uuid[]) x(id)
cross join lateral (select y.child from tusk.open_need y where y.parent = x.id offset 0) o

-- name: needed
-- The tasks of other ledgers that tasks here need, after id $1. They include those that were announced in the last
-- hour, because the transaction that will need them may not have committed yet. A row of nulls says that tasks of lane
-- $3 wait for their run time.
(select f.id, f.state, not o.needed as announced
 from tusk.far f
 cross join lateral (select exists (select from tusk.open_need x where x.parent = f.id) as needed) o
 where f.id > $1 and (o.needed or f.state = 9 and f.heard_at > clock_timestamp() - interval '1 hour')
 order by f.id limit $2)
union all
select null, null, null where exists (select from tusk.waiting w where w.lane = $3 and w.state = 1 and w.line is null)

-- name: forget_delivered
-- A server that has sent tasks and died before it got the answer may be back within a week. Then it sends them again.
delete from tusk.delivered d
where d.ctid = any(array(
  select x.ctid from tusk.delivered x where x.at < clock_timestamp() - interval '7 days'
  order by x.at limit 1000 for update skip locked))

-- name: deliver
-- Records the tasks that another ledger sends, and returns those that are new here.
insert into tusk.delivered (id) select u.id from pg_catalog.unnest($1::uuid[]) u(id) order by u.id
on conflict do nothing
returning id::text

-- name: in_flight
select pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint from pg_current_snapshot() s

-- name: end_process
-- Whether there is no process $1 that began at or before $3. If there is one and it is of this role, it is told to end.
-- This is unknown behind a pooler, where this process is not $2, the one that the client was told.
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
