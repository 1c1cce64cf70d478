-- name: attend
select tusk_fn.attend($1)

-- name: unattend
select tusk_fn.unattend($1)

-- name: unlock
select pg_advisory_unlock(tusk_fn.worker_lock($1))
