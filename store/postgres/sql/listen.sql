-- name: notify
-- Nothing depends on notifications, so the transaction does not wait for the disk.
select pg_notify($1, $2) where set_config('synchronous_commit', 'off', true) is not null
