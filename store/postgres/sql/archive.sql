-- name: others
-- The number of other sessions for which the server is working. The columns about a session's activity are null for
-- roles that may not read them.
select count(*) from pg_stat_activity a
where a.datid is not null and a.usesysid is not null and a.pid <> pg_backend_pid()
  and coalesce(a.state, 'active') = 'active' and coalesce(a.backend_type, 'client backend') = 'client backend'
  and coalesce(a.wait_event_type, '') not in ('Activity', 'Client', 'Lock', 'Timeout')

-- name: flushes_due
-- The snapshot that over() returns, or null if no flush is older than $1 microseconds.
select (case when (
    select x.finished_at <= now() - $1::float8 * interval '1 us' from tusk.outcome x order by x.xid limit 1)
  then tusk_fn.over() end)::text

-- name: due_flushes
-- The next $7 flushes after xid $1, and all others of the last xid, in the order of their xids, which is nearly the
-- order in which they ended. A flush without firsts is not due, for instance because a task that needs one of its tasks
-- has not been told of the end. The last column says that a flush is younger than $2 microseconds. This is false for a
-- flush that ended in the future, before the clock was set back. $3 is the retention of completed tasks, and $5 has
-- those of queues $4. $6 is the snapshot that over() returned.
select x.xid::text::bigint, x.lane, x.token, x.worker, x.claimed_at, x.finished_at, x.lo::text::bigint,
  case when x.finished_at <= now() - nullif(case when q.queue is null then $3::bigint else q.completed end, 0)::float8
      * interval '1 us' and tusk_fn.may_go(x.xid, $6::text::pg_snapshot)
      and not exists (
        select from tusk_fn.ids_of(x.firsts, x.counts) i
        cross join lateral (select from tusk.open_need n where n.parent = i.id limit 1) n)
    then x.firsts end,
  x.counts, x.ago, tusk_fn.queue_of(x.lane),
  x.finished_at > now() - $2::float8 * interval '1 us' and x.finished_at <= now()
from (
  select o.* from tusk.outcome o where o.xid > $1::bigint::text::xid8 order by o.xid
  fetch first ($7::bigint) rows with ties) x
left join unnest($4::bigint[], $5::bigint[]) q(queue, completed) on q.queue = x.lane >> 16
order by x.xid

-- name: due_dead
-- Up to $8 due dead tasks that ended after a given one ($6, $7), oldest first.
select d.lane, d.id, d.kind, d.args, d.enqueued_at, d.attempt, d.crashes, d.run_at, d.expires_at, d.claimed_at,
  d.tenant, d.key, d.tags, d.settings, d.workflow, d.turn, d.partition, tusk_fn.queue_of(d.lane), d.state, d.reason,
  d.finished_at, d.xid::text::bigint
from {dead_due}
    and x.finished_at >= $6 and (x.finished_at, x.id) > ($6, $7)
  order by x.finished_at, x.id
  limit $8) d

-- name: due_rows
-- The rows of single tasks in the log, from an xid on.
select l.lane, l.id, l.kind, l.args, l.enqueued_at, l.attempt, l.crashes, l.run_at, l.expires_at, l.claimed_at,
  l.tenant, l.key, l.tags, l.settings, l.workflow, l.turn, l.partition, l.xid::text::bigint, l.n
from (
  select x.xid, x.n, x.lane, x.id, pg_catalog.left(x.kind, 64) as kind, x.args, x.enqueued_at, x.attempt, x.crashes,
    x.run_at, x.expires_at, x.claimed_at, x.tenant, x.key, tusk_fn.short_tags(x.tags) as tags, x.settings, x.workflow,
    x.turn, x.partition
  from tusk.log x
  where x.id = any($1::uuid[]) and x.packed is null and x.xid >= $2::bigint::text::xid8) l

-- name: due_packs
-- The packs that contain runs of tasks, from an xid on: the common values of each pack, and the args of its tasks.
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
select place, held from tusk_fn.release_flushes($1, $2, $3, $4, $5, $6)

-- name: release_dead
select tusk_fn.release_dead($1, $2)

-- name: existing
-- Those of ids $1 that are tasks.
select u.id from pg_catalog.unnest($1::uuid[]) u(id) where exists (select from tusk_fn.state_of(u.id))

-- name: restore
-- Restores finished tasks from an archive, except tasks $5, as they were, except that they end now. Args $2, settings
-- $3 and outputs $4 are in the order of the tasks' places.
--
-- The xid of these tasks is computed from the time and is above every real one, so that they are not listed as tasks
-- that ended just now.
with here as materialized (
  select now() as now,
    (4611686018427387904 + (extract(epoch from now()) * 1000000::numeric)::bigint)::text::xid8 as xid),
t as materialized (
  select x.* from json_to_recordset($1::json) x(place int, id uuid, state smallint, lane bigint, run_at timestamptz,
    enqueued_at timestamptz, attempt int, crashes int, kind text, expires_at timestamptz, claimed_at timestamptz,
    tenant text, key text, tags text[], failure text, reason text, workflow uuid, turn boolean, partition text,
    progress jsonb, logs jsonb, changed_at timestamptz, changed text, attempts json, needs json)
  where x.id <> all($5::uuid[])),
put as (
  insert into tusk.dead (id, state, lane, run_at, enqueued_at, attempt, crashes, kind, args, expires_at, claimed_at,
    tenant, key, tags, settings, failure, reason, finished_at, workflow, turn, partition, xid)
  select t.id, t.state, t.lane, t.run_at, t.enqueued_at, t.attempt, t.crashes, t.kind, ($2::bytea[])[t.place],
    t.expires_at, t.claimed_at, t.tenant, t.key, t.tags, ($3::bytea[])[t.place], t.failure, t.reason, h.now,
    t.workflow, t.turn, t.partition, h.xid
  from t cross join here h),
tried as (
  insert into tusk.attempt (id, number, worker, started_at, ended_at, state, error, trace, fingerprint, xid)
  select t.id, a.number, a.worker, a.started_at, a.ended_at, a.state, a.error, a.trace, a.fingerprint, '0'
  from t
  cross join lateral json_to_recordset(t.attempts) a(n int, number int, worker uuid, started_at timestamptz,
    ended_at timestamptz, state smallint, error text, trace text, fingerprint text)
  order by t.place, a.n),
noted as (
  insert into tusk.note (id, progress, output, logs, changed_at, changed)
  select t.id, t.progress, ($4::bytea[])[t.place], t.logs, t.changed_at, t.changed
  from t where t.progress is not null or ($4::bytea[])[t.place] is not null or t.logs is not null
    or t.changed_at is not null
  on conflict (id) do update set progress = excluded.progress, output = excluded.output, logs = excluded.logs,
    changed_at = excluded.changed_at, changed = excluded.changed),
needing as (
  insert into tusk.need (child, place, parent, policy)
  select t.id, n.place, n.parent, n.policy
  from t cross join lateral json_to_recordset(t.needs) n(place int, parent uuid, policy smallint))
insert into tusk.key as k (queue, key, ended, tasks)
select x.queue, x.key, (pg_catalog.array_agg(x.id order by x.id desc))[1], count(*)
from (select t.id, t.lane >> 16 as queue, tusk_fn.tenant_key(t.tenant, t.key) collate "C" as key from t
  where t.key is not null) x
group by x.queue, x.key
order by x.queue, x.key
on conflict (queue, key) do update set ended = coalesce(k.ended, excluded.ended), tasks = k.tasks + excluded.tasks
