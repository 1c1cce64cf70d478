-- name: claim
-- $1 worker, $2 token, $3 first lanes of queues, $4 limit, $5 again, $6 lock of the token
select lane, id, kind, args, enqueued_at, attempt, crashes, run_at, expires_at, claimed_at, tenant, key, tags, settings,
  workflow, turn, partition
from tusk.claim($1, $2, $3, $4, $5, $6)

-- name: beat
-- $1 worker, $2 what it says about itself, $3 ttl, $4 to $8 notes
select id, token from tusk.beat($1, $2::jsonb, $3, $4, $5::uuid[], $6::uuid[], $7::text[], $8::bytea[], $9::text[])
