-- name: name_lanes
-- $1 lanes, $2 queues
select tusk_fn.name_lanes($1::bigint[], $2::text[])

-- name: named_lanes
select id, queue from tusk.lane where id = any($1::bigint[]) and idle_at is null

-- name: add
-- Tasks without a key and a run time: $1 lanes, $2 ids, $3 kinds, $4 args, $5 tenants, $6 tags, $7 settings, $8
-- expiries. The offset hides from the planner how many they are. Otherwise it would make a plan for each call.
insert into tusk.log (lane, id, kind, args, tenant, tags, settings, expires_at)
select x.lane, x.id, x.kind, x.args, x.tenant, x.tags::text[], x.settings, x.expires_at
from (select $1::bigint[], $2::uuid[], $3::text[], $4::bytea[], $5::text[], $6::text[], $7::bytea[],
  $8::timestamptz[] offset 0)
  a(lanes, ids, kinds, args, tenants, tags, settings, expiries)
cross join lateral unnest(a.lanes, a.ids, a.kinds, a.args, a.tenants, a.tags, a.settings, a.expiries)
  x(lane, id, kind, args, tenant, tags, settings, expires_at)

-- name: add_one
-- Like add, for one task. The plan is made once for each connection.
insert into tusk.log (lane, id, kind, args, tenant, tags, settings, expires_at)
values ($1::bigint, $2::uuid, $3::text, $4::bytea, $5::text, $6::text::text[], $7::bytea, $8::timestamptz)

-- name: add_leased
-- Like add_one; $8 key, $9 worker and $10 token of a claim that gets the task if it is the first of its queue.
select enqueued_at, claimed_at
from tusk_fn.add_leased($1::bigint, $2::uuid, $3::text, $4::bytea, $5::text, $6::text, $7::bytea, $8::text, $9::uuid,
  $10::uuid)

-- name: add_waiting
-- One task without a key that is due later: $11 microseconds after $10 or, if that is null, after now.
insert into tusk.waiting (id, state, lane, run_at, enqueued_at, attempt, crashes, kind, args, tenant, tags, settings,
  expires_at, line)
values ($2::uuid, 1, $1::bigint, greatest(statement_timestamp(),
    coalesce($10::timestamptz, statement_timestamp()) + $11::bigint::float8 * interval '1 us'),
  statement_timestamp(), 0, 0, $3::text, $4::bytea, $5::text, $6::text::text[], $7::bytea,
  least($8::timestamptz, case when $9::bigint > 0 then statement_timestamp() + $9::float8 * interval '1 us' end), null)
returning true

-- name: add_keyed
-- One task with a key, if that is free. Otherwise, or at another isolation level, the caller uses the function put.
with mine as ({take_key})
insert into tusk.log (lane, id, kind, args, tenant, tags, settings, key, expires_at)
select ?::bigint, ?::uuid, ?::text, ?::bytea, ?::text, ?::text::text[], ?::bytea, ?::text,
  least(?::timestamptz, statement_timestamp() + ?::bigint::float8 * interval '1 us')
from mine
returning true

-- name: add_keyed_leased
-- Like add_keyed and add_leased.
with mine as ({take_key})
select l.enqueued_at, l.claimed_at
from mine
cross join lateral tusk_fn.add_leased(?::bigint, ?::uuid, ?::text, ?::bytea, ?::text, ?::text, ?::bytea, ?::text,
  ?::uuid, ?::uuid) l

-- name: copy
copy tusk.log (lane, id, kind, args) from stdin (format binary)

-- name: copy_more
copy tusk.log (lane, id, kind, args, tenant, tags, settings, expires_at) from stdin (format binary)

-- name: copy_packs
copy tusk.log (lane, id, kind, args, tenant, tags, settings, expires_at, packed) from stdin (format binary)

-- name: copy_lined
-- Tasks that join a line for their turn now.
copy tusk.{line} (lane, id, kind, args, tenant, tags, settings, expires_at, partition, state, turn)
  from stdin (format binary)

-- name: add_lined
-- Like copy_lined, for one task.
insert into tusk.{line} (lane, id, kind, args, tenant, tags, settings, expires_at, partition, state, turn)
values ($1::bigint, $2::uuid, $3::text, $4::bytea, $5::text, $6::text::text[], $7::bytea, $8::timestamptz, $9::text, 2,
  true)

-- name: add_all_lined
-- Like add_lined, for several tasks.
insert into tusk.{line} (lane, id, kind, args, tenant, tags, settings, expires_at, partition, state, turn)
select x.lane, x.id, x.kind, x.args, x.tenant, x.tags::text[], x.settings, x.expires_at, x.partition, 2, true
from (select $1::bigint[], $2::uuid[], $3::text[], $4::bytea[], $5::text[], $6::text[], $7::bytea[],
  $8::timestamptz[], $9::text[] offset 0)
  a(lanes, ids, kinds, args, tenants, tags, settings, expiries, partitions)
cross join lateral unnest(a.lanes, a.ids, a.kinds, a.args, a.tenants, a.tags, a.settings, a.expiries, a.partitions)
  x(lane, id, kind, args, tenant, tags, settings, expires_at, partition)

-- name: put
-- Tasks of every sort.
select p.place, p.id::text, p.result::int from tusk_fn.put({new_tasks}) p

-- name: put_needing
-- Like put, with the needs of the tasks.
select p.place, p.id::text, p.result::int from tusk_fn.put_needing({new_tasks}, {new_needs}) p

-- name: settle_children
-- Settles the doubts of tasks $1, which were just enqueued.
select x.queue
from (
  select array(select d.n from tusk.doubt d where d.child = any($1::uuid[]) order by d.n limit 1000) as ns offset 0) a
cross join lateral tusk_fn.settle(a.ns) x(queue)
where pg_catalog.cardinality(a.ns) > 0

-- name: doubts_left
-- How many of the doubts of tasks $1 are left, of parents that have not ended.
select count(*)::int
from (select x.parent from tusk.doubt x where x.child = any($1::uuid[]) order by x.n limit 1000) d
where exists (select from tusk_fn.states_of(array[d.parent]) s where s.state < 6)

-- name: is_over
-- Whether the server process $1 has ended, and with it its transaction. This is unknown on a standby, and behind a
-- pooler, where this process is not $2, the one that the client was told.
select pg_backend_pid() = $2::int and not pg_is_in_recovery()
  and not exists (select from pg_stat_activity a where a.pid = $1::int)

-- name: count_stored
-- How many of the ids $1 belong to tasks, whatever their state.
select count(*) from pg_catalog.unnest($1::uuid[]) u(id)
cross join lateral (
  select from tusk_fn.rows_of(u.id)
  union all
  select from tusk.unready w where w.id = u.id
  union all
  select from tusk.dead d where d.id = u.id
  limit 1) x
