-- name: workers_of
-- How many living workers take from queue $1, up to $2.
select count(*)::int
from (
  select from tusk.worker w
  where not w.dead and w.about operator(pg_catalog.->) 'queues' operator(pg_catalog.?) $1
  limit $2) w

-- name: notify
-- Nobody relies on it, so it does not wait for the disk.
select pg_notify($1, $2) where set_config('synchronous_commit', 'off', true) is not null
