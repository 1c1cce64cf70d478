-- name: claim
-- $1 worker, $2 token, $3 first lanes of queues, $4 limit, $5 again, $6 lock of the token, $7 all columns, $8 packs are likely
select lane, claimed_at, ids, kinds, args, enqueued_at, attempts, crashes, run_at, expires_at, tenants, keys, tags, settings,
  workflows, turns, partitions
from tusk_fn.claim($1, $2, $3, $4, $5, $6, $7, $8)

-- name: exchange
-- $1 worker, $2 token, $3 first lanes of queues, $4 lock of the token, $5 the lane that likely has a task; what ended:
-- $6 its token, $7 its lane, $8 its id, $9 milliseconds ago, $10 statistics
call tusk_fn.exchange($1, $2, $3, $4, $5, $6, $7, $8, $9, $10,
  null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null)

-- name: beat
-- $1 worker, $2 what it says about itself, $3 ttl, $4 when the next is due, $5 its number, $6 that of the last one
-- answered, $7 the tokens it holds
select id, token from tusk_fn.beat($1, $2::jsonb, $3, $4, $5, $6, $7::uuid[])
