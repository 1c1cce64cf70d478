-- name: name_lanes
-- $1 lanes, $2 queues
select tusk_fn.name_lanes($1::bigint[], $2::text[])

-- name: named_lanes
select id, queue from tusk.lane where id = any($1::bigint[]) and idle_at is null

-- name: add
-- Tasks without key and run time: $1 lanes, $2 ids, $3 kinds, $4 args,
-- $5 tenants, $6 tags, $7 settings, $8 expiries. The planner is not told how many they
-- are: it would make a plan for each call.
insert into tusk.log (lane, id, kind, args, tenant, tags, settings, expires_at)
select x.lane, x.id, x.kind, x.args, x.tenant, x.tags::text[], x.settings, x.expires_at
from (select $1::bigint[], $2::uuid[], $3::text[], $4::bytea[], $5::text[], $6::text[], $7::bytea[],
  $8::timestamptz[] offset 0)
  a(lanes, ids, kinds, args, tenants, tags, settings, expiries)
cross join lateral unnest(a.lanes, a.ids, a.kinds, a.args, a.tenants, a.tags, a.settings, a.expiries)
  x(lane, id, kind, args, tenant, tags, settings, expires_at)

-- name: add_one
-- The same of one task, whose plan is made once for a connection.
insert into tusk.log (lane, id, kind, args, tenant, tags, settings, expires_at)
values ($1::bigint, $2::uuid, $3::text, $4::bytea, $5::text, $6::text::text[], $7::bytea, $8::timestamptz)

-- name: add_waiting
-- One task that is due later, after $11 microseconds from $10 on or from now on, and has no key.
insert into tusk.waiting (id, state, lane, run_at, enqueued_at, attempt, crashes, kind, args, tenant, tags, settings,
  expires_at, line)
values ($2::uuid, 1, $1::bigint, greatest(statement_timestamp(),
    coalesce($10::timestamptz, statement_timestamp()) + $11::bigint::float8 * interval '1 us'),
  statement_timestamp(), 0, 0, $3::text, $4::bytea, $5::text, $6::text::text[], $7::bytea,
  least($8::timestamptz, case when $9::bigint > 0 then statement_timestamp() + $9::float8 * interval '1 us' end), null)
returning true

-- name: add_keyed
-- One task with the key $10, which its tenant owns as $11, if that is free; with $12 only if it never had a task.
-- Others are for the function put, and so is another isolation level.
with mine as (
  insert into tusk.key as k (queue, key, holder, tasks)
  select $1::bigint >> 16, $11::text, $2::uuid, 1
  where pg_catalog.current_setting('transaction_isolation') = 'read committed'
  on conflict (queue, key) do update set holder = excluded.holder, tasks = k.tasks + 1
  where k.holder is null and not ($12::boolean and k.tasks > 0)
  returning true)
insert into tusk.log (lane, id, kind, args, tenant, tags, settings, expires_at, key)
select $1::bigint, $2::uuid, $3::text, $4::bytea, $5::text, $6::text::text[], $7::bytea,
  least($8::timestamptz, case when $9::bigint > 0 then statement_timestamp() + $9::float8 * interval '1 us' end),
  $10::text
from mine
returning true

-- name: copy
copy tusk.log (lane, id, kind, args) from stdin (format binary)

-- name: copy_more
copy tusk.log (lane, id, kind, args, tenant, tags, settings, expires_at) from stdin (format binary)

-- name: copy_packs
copy tusk.log (lane, id, kind, args, tenant, tags, settings, expires_at, packed) from stdin (format binary)

-- name: copy_lined
-- Tasks that stand in line for their turn from now on.
copy tusk.waiting (lane, id, kind, args, tenant, tags, settings, expires_at, partition, state, turn)
  from stdin (format binary)

-- name: add_lined
-- One that does.
insert into tusk.waiting (lane, id, kind, args, tenant, tags, settings, expires_at, partition, state, turn)
values ($1::bigint, $2::uuid, $3::text, $4::bytea, $5::text, $6::text::text[], $7::bytea, $8::timestamptz, $9::text, 2,
  true)

-- name: put
-- Tasks of every sort.
select p.place, p.id::text, p.result::int from tusk_fn.put({new_tasks}) p

-- name: put_needing
-- The same, and what they need.
select p.place, p.id::text, p.result::int from tusk_fn.put_needing({new_tasks}, {new_needs}) p

-- name: settle_children
select queue, doubts from tusk_fn.settle_children($1)

-- name: is_over
-- Whether the server's process $1 has ended, and with it what it was doing. Nobody
-- knows behind a pooler, where this process is not the $2 that the client was told,
-- nor on a standby.
select pg_backend_pid() = $2::int and not pg_is_in_recovery()
  and not exists (select from pg_stat_activity a where a.pid = $1::int)

-- name: count_stored
-- How many of the ids $1 are those of tasks, wherever they are by now.
select count(*) from pg_catalog.unnest($1::uuid[]) u(id)
cross join lateral (
  select from tusk_fn.rows_of(u.id)
  union all
  select from tusk.waiting w where w.id = u.id
  union all
  select from tusk.dead d where d.id = u.id
  limit 1) x
