-- name: turns
select queue, tenant, partition, held, waiting from tusk_fn.turns($1, $2, $3)

-- name: grant
select tasks, queues from tusk_fn.grant_turns($1, $2)
