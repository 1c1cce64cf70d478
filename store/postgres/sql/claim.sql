-- name: claim
-- $1 worker, $2 token, $3 first lanes of queues, $4 limit, $5 again, $6 lock of the token, $7 all columns, $8 packs
-- are likely
select lane, claimed_at, ids, kinds, args, enqueued_at, attempts, crashes, run_at, expires_at, tenants, keys, tags,
  settings, workflows, turns, partitions
from tusk_fn.claim($1, $2, $3, $4, $5, $6, $7, $8)

-- name: claim_sparse
-- The same, where the last claim found nothing: a look at whether there may be something
-- costs less, and keeps nobody who claims.
select c.lane, c.claimed_at, c.ids, c.kinds, c.args, c.enqueued_at, c.attempts, c.crashes, c.run_at, c.expires_at,
  c.tenants, c.keys, c.tags, c.settings, c.workflows, c.turns, c.partitions
from (select tusk_fn.lanes_with_rows($3) as lanes offset 0) l
cross join lateral tusk_fn.claim($1, $2, $3, $4, $5, $6, $7, $8) c
where pg_catalog.cardinality(l.lanes) > 0 or not exists (select from tusk.worker w where w.id = $1 and not w.dead)

-- name: exchange
-- $1 worker, $2 token, $3 first lanes of queues, $4 lock of the token, $5 the lane that likely has a task; what ended:
-- $6 its token, $7 its lane, $8 its id, $9 milliseconds ago, $10 statistics
call tusk_fn.exchange($1, $2, $3, $4, $5, $6, $7, $8, $9, $10,
  null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null)

-- name: wait_briefly
-- In a transaction of several statements a lock that is waited for keeps all of them.
select pg_catalog.set_config('lock_timeout', '300ms', true)

-- name: beat
-- $1 worker, $2 what it says about itself, $3 ttl, $4 when the next is due, $5 its number, $6 that of the last one
-- answered, $7 the tokens it holds
select id, token from tusk_fn.beat($1, $2::jsonb, $3, $4, $5, $6, $7::uuid[])

-- name: beat_of
-- The same of ledger {i}, which holds the tokens {holds}. Those of several ledgers are put together.
select {i} as i, id, token from tusk_fn.beat($1, $2::jsonb, $3, $4, $5, $6, {holds}::uuid[])
