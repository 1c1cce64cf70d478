-- name: pin
-- Makes the planner choose the same plans for the rest of the transaction, whatever it believes about tables that grow
-- fast.
select pg_catalog.set_config('enable_seqscan', 'off', true), pg_catalog.set_config('enable_bitmapscan', 'off', true),
  pg_catalog.set_config('plan_cache_mode', 'force_generic_plan', true), pg_catalog.set_config('jit', 'off', true)

-- name: pin_order
-- Like pin, for queries whose order an index provides.
select pg_catalog.set_config('enable_seqscan', 'off', true), pg_catalog.set_config('enable_bitmapscan', 'off', true),
  pg_catalog.set_config('enable_sort', 'off', true),
  pg_catalog.set_config('plan_cache_mode', 'force_generic_plan', true), pg_catalog.set_config('jit', 'off', true)

-- name: no_jit
select pg_catalog.set_config('jit', 'off', true)

-- name: pin_each
-- For queries that look rows up one by one.
select pg_catalog.set_config('enable_memoize', 'off', true), pg_catalog.set_config('enable_hashjoin', 'off', true),
  pg_catalog.set_config('enable_mergejoin', 'off', true), pg_catalog.set_config('jit', 'off', true)

-- name: leads_still
-- Fails unless term $1 is running.
select tusk_fn.lead($1)

-- name: hold_lead
-- Like leads_still, but also keeps the term from ending before the transaction does.
select tusk_fn.hold_lead($1)

-- name: now
select clock_timestamp()
