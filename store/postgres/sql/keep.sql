-- name: lead
select term, now from tusk.candidate($1, $2)

-- name: admit
select tasks, cancelled, queues, next from tusk.admit_all($1, $2)

-- name: rescue
select lane, id, kind, args, enqueued_at, attempt, crashes, run_at, expires_at, claimed_at, tenant, key, tags, settings,
  workflow, turn, partition, token, worker,
  tusk.queue_of(lane), stray
from tusk.rescue($1, $2, $3)

-- name: prune
select deleted, hand from tusk.prune($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
