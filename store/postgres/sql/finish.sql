-- name: add_notes
-- Stores what handlers recorded in attempts whose end was just accepted. It is in the same transaction, so that an end
-- that is refused leaves nothing behind.
{notes}
{into_notes}

-- name: write_free_notes
select tusk_fn.write_free_notes($1::uuid[], $2::uuid[], $3::text[], $4::bytea[], $5::text[])

-- name: write_last_notes
-- The notes of a worker that signs off. Nothing is written for a worker that has gone or a beat that comes late.
select tusk_fn.write_free_notes($1::uuid[], $2::uuid[], $3::text[], $4::bytea[], $5::text[])
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
select tusk_fn.finish_tx(?, ?, {odd_end}, ?, ?, ?)

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
select tusk_fn.finish_tx_more(?, ?, {odd_end}, ?, ?, ?, {new_tasks}, {new_needs}, {extras})
