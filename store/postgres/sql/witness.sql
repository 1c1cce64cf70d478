-- name: lock_workers
-- Takes the locks of workers $1 for the session.
select pg_advisory_lock({worker_lock}) from pg_catalog.unnest($1::uuid[]) u(id) order by {worker_lock}

-- name: attend
-- Records that the process holds the locks of workers $1.
update tusk.worker w set attended = pg_postmaster_start_time(), suspected_at = null
where w.id = any(array(select x.id from tusk.worker x where x.id = any($1::uuid[]) and not x.dead order by x.id
  for no key update))

-- name: unattend
-- Records that a process lives but has lost its session. From now on only beats keep its workers alive.
update tusk.worker w set attended = null, suspected_at = null
where w.id = any(array(select x.id from tusk.worker x where x.id = any($1::uuid[]) and x.attended is not null
  order by x.id for no key update))

-- name: unlock
select pg_advisory_unlock({worker_lock}) from (select $1::uuid as id) u
