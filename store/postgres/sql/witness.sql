-- name: whoami
select pg_backend_pid()

-- name: attend
select tusk.attend($1)

-- name: unattend
select tusk.unattend($1)

-- name: unlock
select pg_advisory_unlock(tusk.worker_lock($1))
