-- name: add_notes
-- Stores what handlers recorded in attempts whose end was just accepted. It is in the same transaction, so that an end
-- that is refused leaves nothing behind.
{notes}
{into_notes}

-- name: write_notes
select tusk_fn.write_notes($1::uuid[], $2::uuid[], $3::text[], $4::bytea[], $5::text[])

-- name: write_last_notes
-- The notes of a worker that signs off. Nothing is written for a worker that has gone or a beat that comes late.
select tusk_fn.write_notes($1::uuid[], $2::uuid[], $3::text[], $4::bytea[], $5::text[])
from tusk.worker w
where w.id = $6 and not w.dead and ($7::bigint = 0 or w.seq < $7)

-- name: finish_plain
select token, id, held, queue from tusk_fn.finish_plain($1, $2, $3, $4, $5, $6, $7)

-- name: finish_keyed
select token, id, held, queue from tusk_fn.finish_plain($1, $2, $3, $4, $5, $6, $7,
  row($8, $9, $10)::tusk_fn.end_key)

-- name: finish_lease
select token, id, held, queue from tusk_fn.finish_lease(?, ?, ?, ?, ?, ?, ?, ?, {end_keys})

-- name: finish
select token, id, held, queue from tusk_fn.finish({flush}, {odd_ends}, {end_keys})

-- name: pin_end
-- Instead of the set clauses of a function that ends attempts.
select pg_catalog.set_config('enable_seqscan', 'off', true), pg_catalog.set_config('enable_bitmapscan', 'off', true),
  pg_catalog.set_config('plan_cache_mode', 'force_generic_plan', true), pg_catalog.set_config('jit', 'off', true),
  pg_catalog.set_config('lock_timeout', '300ms', true)

-- name: finish_failed
-- The most common end after completions: the only task $3 of lease $1 is tried again $4 microseconds later. It has no
-- key, nobody has asked it to stop, and tusk.beside has no value. Otherwise, this writes and returns nothing, and the
-- function finish ends the task.
with mine as materialized (
  delete from tusk.lease y
  where y.token = $1::uuid and y.lane = $2::bigint and y.open is null and y.firsts[1] = $3::uuid
    and pg_catalog.cardinality(y.firsts) = 1 and y.counts is null and y.lo = y.hi
    and pg_catalog.pg_sequence_last_value('tusk.beside') is null
    and pg_catalog.current_setting('transaction_isolation') = 'read committed' and not exists (
      select from tusk.stop x where x.id = $3 and x.token = $1)
    and not exists (select from tusk_fn.rows_of($3, y.lo, y.lo) x where x.lane = $2 and x.key is not null)
  returning y.lo, y.worker, y.claimed_at),
own as materialized (
  select m.lo, m.worker, m.claimed_at as began, c.now, t.*,
    greatest(c.now - $5::float8 * interval '1 us', m.claimed_at) as ended
  from mine m
  cross join (select clock_timestamp() as now offset 0) c
  left join lateral (select x.* from tusk_fn.rows_of($3, m.lo, m.lo) x where x.lane = $2 limit 1) t on true),
before as (
  delete from tusk.attempt y where y.id = $3 and y.error = '' and exists (select from own)),
attempted as (
  insert into tusk.attempt (id, number, worker, started_at, ended_at, state, error, trace, fingerprint)
  select o.id, o.attempt + 1, o.worker, o.began, o.ended, 5, $8, $9, $10 from own o),
grouped as (
  insert into tusk.failure as f (queue, kind, fingerprint, count, first_at, last_at, sample, sample_task)
  select $2 >> 16, o.kind, $10, 1, o.ended, o.ended, $8, o.id from own o
  on conflict (queue, kind, fingerprint) do update
  set count = f.count + 1, first_at = least(f.first_at, excluded.first_at),
    last_at = greatest(f.last_at, excluded.last_at),
    sample = case when excluded.last_at >= f.last_at then excluded.sample else f.sample end,
    sample_task = case when excluded.last_at >= f.last_at then excluded.sample_task else f.sample_task end),
put_off as (
  insert into tusk.waiting (id, state, lane, run_at, enqueued_at, attempt, crashes, kind, args, expires_at,
    claimed_at, tenant, tags, settings, failure, workflow, turn, partition, line)
  select o.id, 5, $2, o.now + $4::float8 * interval '1 us', o.enqueued_at, $6::int, $7::int, o.kind, o.args,
    o.expires_at, o.began, o.tenant, o.tags, o.settings, $10, o.workflow, o.turn, o.partition,
    null -- its default is a place in line
  from own o)
insert into tusk.outcome (lane, node, lo, token, worker, claimed_at, finished_at, keyed, stats, firsts, ago)
select $2, o.lo::text::bigint * 2::bigint + 1::bigint, o.lo, $1, o.worker, o.began, o.now, 0, $11, '{}', $12
from own o
returning true

-- name: still_failed
-- Starts over if, before the lease was locked, another transaction ended the task beside it or asked it to stop.
select tusk_fn.begin_anew()
where pg_catalog.pg_current_xact_id_if_assigned() is not null -- else nothing was written
  and (pg_catalog.pg_sequence_last_value('tusk.beside') is not null
    or exists (select from tusk.stop x where x.id = $1::uuid and x.token = $2::uuid))

-- name: finish_keyed_turns
-- This statement and the next three are for plain completions of tasks that run in turns.
with f as materialized (
  select token, id, held, queue
  from tusk_fn.finish_plain(?, ?, ?, ?, ?, ?, ?, row(?, ?, ?)::tusk_fn.end_key)),
{turns_back}

-- name: finish_plain_turns
with f as materialized (select token, id, held, queue from tusk_fn.finish_plain(?, ?, ?, ?, ?, ?, ?)),
{turns_back}

-- name: finish_lease_turns
with f as materialized (select token, id, held, queue from tusk_fn.finish_lease(?, ?, ?, ?, ?, ?, ?, ?, {end_keys})),
{turns_back}

-- name: finish_turns
with f as materialized (select token, id, held, queue from tusk_fn.finish({flush}, '{}', {end_keys})),
{turns_back}

-- name: finish_noted
-- Notes are stored only if all ends were accepted, and do not wait for a user's transaction.
with f as materialized (select token, id, held, queue from tusk_fn.finish({flush}, {odd_ends}, {end_keys})),
noted as (
  {notes}
  where not exists (select from f where f.id is not null or f.held is not null)
    and pg_catalog.set_config('lock_timeout', '20ms', true) is not null
  {into_notes})
select token, id, held, queue from f

-- name: finish_tx
-- Whether the end was accepted, and the name to ring.
select done, coalesce(queue, '') from tusk_fn.finish_tx(?, ?, {odd_end}, ?, ?, ?)

-- name: finish_more
select token, id, held, queue
from tusk_fn.finish_more({flush}, {odd_ends}, {end_keys}, {new_tasks}, {new_needs}, {extras})

-- name: finish_more_noted
with f as materialized (
  select token, id, held, queue
  from tusk_fn.finish_more({flush}, {odd_ends}, {end_keys}, {new_tasks}, {new_needs}, {extras})),
noted as (
  {notes}
  where not exists (select from f where f.id is not null or f.held is not null)
    and pg_catalog.set_config('lock_timeout', '20ms', true) is not null
  {into_notes})
select token, id, held, queue from f

-- name: finish_tx_more
select done, coalesce(queue, '')
from tusk_fn.finish_tx(?, ?, {odd_end}, ?, ?, ?, {new_tasks}, {new_needs}, {extras})
