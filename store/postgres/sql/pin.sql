-- name: pin
-- How the rest of the transaction is planned: alike, whatever the planner believes of tables that grow fast.
select pg_catalog.set_config('enable_seqscan', 'off', true), pg_catalog.set_config('enable_bitmapscan', 'off', true),
  pg_catalog.set_config('plan_cache_mode', 'force_generic_plan', true), pg_catalog.set_config('jit', 'off', true)

-- name: pin_order
-- The same where an index has the order that is asked for.
select pg_catalog.set_config('enable_seqscan', 'off', true), pg_catalog.set_config('enable_bitmapscan', 'off', true),
  pg_catalog.set_config('enable_sort', 'off', true),
  pg_catalog.set_config('plan_cache_mode', 'force_generic_plan', true), pg_catalog.set_config('jit', 'off', true)

-- name: no_jit
select pg_catalog.set_config('jit', 'off', true)

-- name: pin_each
-- The same of what is looked for one by one.
select pg_catalog.set_config('enable_memoize', 'off', true), pg_catalog.set_config('enable_hashjoin', 'off', true),
  pg_catalog.set_config('enable_mergejoin', 'off', true), pg_catalog.set_config('jit', 'off', true)

-- name: leads_still
-- Fails unless term $1 runs.
select tusk_fn.lead($1)

-- name: hold_lead
-- The same, and holds the term's end off until the transaction is over.
select tusk_fn.hold_lead($1)

-- name: now
select clock_timestamp()
