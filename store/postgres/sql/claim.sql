-- name: claim
-- $1 worker, $2 token, $3 first lanes of queues, $4 limit, $5 lock of the token, $6 whether all columns are wanted, $7
-- whether packs are likely
select lane, claimed_at, ids, kinds, args, enqueued_at, attempts, crashes, run_at, expires_at, tenants, keys, tags,
  settings, workflows, turns, partitions
from tusk_fn.claim($1, $2, $3, $4, $5, $6, $7)

-- name: claim_sparse
-- Like claim, for use after a claim that found nothing. It first looks whether there may be tasks, which costs less and
-- makes no other claim wait.
select c.lane, c.claimed_at, c.ids, c.kinds, c.args, c.enqueued_at, c.attempts, c.crashes, c.run_at, c.expires_at,
  c.tenants, c.keys, c.tags, c.settings, c.workflows, c.turns, c.partitions
from (select tusk_fn.lanes_with_rows($3) as lanes offset 0) l
cross join lateral tusk_fn.claim($1, $2, $3, $4, $5, $6, $7) c
where pg_catalog.cardinality(l.lanes) > 0 or not exists (select from tusk.worker w where w.id = $1 and not w.dead)

-- name: await_claim
-- Waits until a claim has ended, given the lock of its token.
select pg_advisory_xact_lock($1::bigint) where pg_catalog.set_config('lock_timeout', '2s', true) is not null

-- name: lives
select from tusk.worker w where w.id = $1 and not w.dead

-- name: claimed
-- The tasks that lease $1 still holds.
select h.lane, h.id, h.kind, h.args, h.enqueued_at, h.attempt, h.crashes, h.run_at, h.expires_at, h.claimed_at,
  h.tenant, h.key, h.tags, h.settings, h.workflow, h.turn, h.partition
from tusk_fn.held h
where h.token = $1
order by h.lane, h.xid, h.n

-- name: exchange
-- $1 worker, $2 token, $3 first lanes of queues, $4 lock of the token, $5 lane that probably has a task, and of the
-- task that ended: $6 token, $7 lane, $8 id, $9 how many milliseconds ago, $10 statistics
call tusk_fn.exchange($1, $2, $3, $4, $5, $6, $7, $8, $9, $10,
  null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null)

-- name: wait_briefly
-- In a transaction of several statements, a wait for a lock delays all of them.
select pg_catalog.set_config('lock_timeout', '300ms', true)

-- name: beat
-- $1 worker, $2 its description, $3 ttl, $4 interval until the next beat, $5 number of the beat, $6 number of the last
-- beat that was answered, $7 tokens that the worker holds
select id, token from tusk_fn.beat($1, $2::jsonb, $3, $4, $5, $6, $7::uuid[])

-- name: beat_of
-- Like beat, for ledger {i}, in which the worker holds the tokens {holds}. The statements of several ledgers are
-- combined.
select {i} as i, id, token from tusk_fn.beat($1, $2::jsonb, $3, $4, $5, $6, {holds}::uuid[])
