-- name: lead
select term, now from tusk_fn.candidate($1, $2)

-- name: admit
select tasks, cancelled, queues, next from tusk_fn.admit_all($1, $2)

-- name: rescue
select lane, id, kind, args, enqueued_at, attempt, crashes, run_at, expires_at, claimed_at, tenant, key, tags, settings,
  workflow, turn, partition, token, worker,
  tusk_fn.queue_of(lane), stray
from tusk_fn.rescue($1, $2, $3)

-- name: prune
select deleted, hand from tusk_fn.prune($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
