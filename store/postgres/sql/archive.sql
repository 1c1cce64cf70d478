-- name: others
-- The sessions that the server works for, but for this one. What a session does is null for who may
-- not know.
select count(*) from pg_stat_activity a
where a.datid is not null and a.usesysid is not null and a.pid <> pg_backend_pid()
  and coalesce(a.state, 'active') = 'active' and coalesce(a.backend_type, 'client backend') = 'client backend'
  and coalesce(a.wait_event_type, '') not in ('Activity', 'Client', 'Lock', 'Timeout')

-- name: due_flushes
select xid, lane, token, worker, claimed_at, finished_at, lo, firsts, counts, ago, queue
from tusk_fn.due_flushes($1, $2, $3, $4, $5, $6)

-- name: due_dead
select d.lane, d.id, d.kind, d.args, d.enqueued_at, d.attempt, d.crashes, d.run_at, d.expires_at, d.claimed_at,
  d.tenant, d.key, d.tags, d.settings, d.workflow, d.turn, d.partition, tusk_fn.queue_of(d.lane), d.state, d.reason,
  d.finished_at, d.xid::text::bigint
from tusk_fn.due_dead($1, $2, $3, $4, $5, $6, $7, $8) d

-- name: due_rows
-- The rows of the log that single tasks have, from an xid on.
select l.lane, l.id, l.kind, l.args, l.enqueued_at, l.attempt, l.crashes, l.run_at, l.expires_at, l.claimed_at,
  l.tenant, l.key, l.tags, l.settings, l.workflow, l.turn, l.partition, l.xid::text::bigint, l.n
from (
  select x.xid, x.n, x.lane, x.id, tusk_fn.short_kind(x.kind) as kind, x.args, x.enqueued_at, x.attempt, x.crashes,
    x.run_at, x.expires_at, x.claimed_at, x.tenant, x.key, tusk_fn.short_tags(x.tags) as tags, x.settings, x.workflow,
    x.turn, x.partition
  from tusk.log x
  where x.id = any($1::uuid[]) and x.packed is null and x.xid >= $2::bigint::text::xid8) l

-- name: due_packs
-- The packs that runs of tasks are in, from an xid on: of each what its tasks share, and their args.
select r.place, p.lane, p.kind, p.enqueued_at, p.expires_at, p.tags, p.settings, p.args
from unnest($1::uuid[], $2::int[]) with ordinality r(first, count, place)
cross join lateral (
  select x.lane, x.kind, x.enqueued_at, x.expires_at, x.tags, x.settings,
    x.packed[x.at + 1 : x.at + r.count] as args, x.tasks - x.at as rest
  from (
    select l.lane, l.kind, l.enqueued_at, l.expires_at, l.tags, l.settings, l.packed,
      pg_catalog.cardinality(l.packed) as tasks, tusk_fn.ids_between(l.id, r.first) as at
    from tusk.log l
    where l.packed is not null and l.id between tusk_fn.block_of(r.first) and r.first
      and l.xid >= $3::bigint::text::xid8
    order by l.id desc limit 1) x) p
where p.rest >= r.count

-- name: release_flushes
select place, held from tusk_fn.release_flushes($1, $2, $3, $4, $5)

-- name: release_dead
select tusk_fn.release_dead($1, $2)

-- name: restore
select tusk_fn.restore($1, $2, $3, $4)
