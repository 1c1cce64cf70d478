-- name: turns
select queue, tenant, partition, held, waiting from tusk.turns($1, $2, $3)

-- name: grant
select tasks, queues from tusk.grant_turns($1, $2)
