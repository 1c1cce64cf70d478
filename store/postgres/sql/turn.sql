-- name: turns
select queue, tenant, partition, waiting from tusk_fn.turns($1, $2, $3)

-- name: turns_since
select sum, anew, now::text, place, back, queue, ids, tenants, partitions
from tusk_fn.turns_since($1, $2::text::pg_snapshot)

-- name: grant
select tasks, queues from tusk_fn.grant_turns($1, $2)
