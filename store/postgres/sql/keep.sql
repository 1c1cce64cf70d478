-- name: lead
-- $1 the candidate, $2 the length of the term. Usually another candidate leads, and this statement returns a row. If it
-- returns none, the next statements find out who leads.
select 0::bigint as term, clock_timestamp() as now from tusk.leader l
where $2::bigint > 0 and l.id <> $1::uuid and l.expires_at > clock_timestamp()
  and l.renewed_at <= clock_timestamp() + interval '1 second'

-- name: turn_lead
-- If the clock was set back, the term of a leader other than $1 starts now.
update tusk.leader x set expires_at = c.now + (x.expires_at - x.renewed_at), renewed_at = c.now
from (select clock_timestamp() as now) c
where $2::bigint > 0 and x.id <> $1::uuid and x.expires_at > c.now and x.renewed_at > c.now + interval '1 second'

-- name: lock_lead
-- Locks the leader's row before a term ends.
select from tusk.leader l
where case when $2::bigint > 0 then l.id is null or l.id <> $1::uuid and l.expires_at <= clock_timestamp()
  else l.id = $1 end
for update

-- name: take_lead
-- At most one candidate holds a running term. It keeps a term that has expired as long as nobody else has taken it.
update tusk.leader x
set id = case when $2::bigint > 0 then $1::uuid end, term = x.term + ($2::bigint > 0 and x.id is distinct from $1)::int,
  renewed_at = case when $2::bigint > 0 then c.now else x.renewed_at end,
  expires_at = case when $2::bigint > 0 then c.now + $2::float8 * interval '1 us' else x.expires_at end
from (select clock_timestamp() as now) c
where case when $2::bigint > 0 then x.id is null or x.id = $1 or x.expires_at <= c.now else x.id = $1 end
returning case when $2::bigint > 0 then x.term else 0 end, c.now

-- name: lock_adopt
-- Like lock_lead, before a term below $1 ends: waits for the transactions that keep it from ending.
select from tusk.leader l where l.term < $1 for update

-- name: adopt
with adopted as (
  update tusk.leader x
  set id = case when $3::bigint > 0 then $1::uuid end, term = $2, renewed_at = c.now,
    expires_at = c.now + $3::float8 * interval '1 us'
  from (select clock_timestamp() as now) c
  where x.term < $2 or x.term = $2 and x.id is not distinct from $1
  returning x.term)
select coalesce(a.term, l.term), clock_timestamp(), a.term is not null from tusk.leader l left join adopted a on true

-- name: admit
-- Moves a limited number of due tasks into the log if the term is running, except tasks that run in turns.
with {led},
gone as (
  delete from tusk.waiting w
  where w.ctid = any(array(
    select x.ctid from tusk.waiting x
    where {is_due} and x.turn is not true order by x.run_at, x.n limit ?::int for update skip locked))
  returning w.*),
{admitted}

-- name: admit_lined
-- Like admit, for tasks that run in turns. Those that have no turn yet get in line.
with {led},
due as materialized (
  select x.id, x.ctid as at, x.id not in (select h.id from tusk.turn h) as line
  from tusk.waiting x
  where {is_due} and x.turn order by x.run_at, x.n limit ?::int for update of x skip locked),
lined as (
  update tusk.waiting w set state = 2, line = clock_timestamp() from due where w.id = due.id and due.line),
gone as (
  delete from tusk.waiting w where w.ctid = any(array(select d.at from due d where not d.line)) returning w.*),
{admitted}

-- name: admit_next
-- Whether the term is running, the microseconds until the next task is due, whether any of the first due tasks runs in
-- turns, and the next doubts. The transaction does not wait for the disk, because tasks whose admission is lost in a
-- crash are admitted again.
select exists (
    select from tusk.leader l where l.term = ?::bigint and l.id is not null and l.expires_at > clock_timestamp()),
  (
    select (extract(epoch from greatest(w.run_at, statement_timestamp()) - statement_timestamp())
      * 1000000::numeric)::bigint
    from tusk.waiting w where w.state <> 2 and w.run_at < 'infinity' order by w.run_at, w.n limit 1),
  exists (
    select from (
      select w.turn from tusk.waiting w where w.state <> 2 and w.run_at <= statement_timestamp() order by w.run_at, w.n
      limit ?::int) w
    where w.turn),
  array({next_doubts})
where pg_catalog.set_config('synchronous_commit', 'off', true) is not null

-- name: doubts_after
{next_doubts}

-- name: settle
-- Settles doubts $1 and returns the names to ring.
select tusk_fn.settle($1)

-- name: forget_doubts
-- Deletes the doubts of tasks that are no longer pending.
delete from tusk.doubt d
where d.ctid = any(array(
  select x.ctid from tusk.doubt x
  where x.n = any($1::bigint[])
    and not exists (select from tusk.waiting w where w.id = x.child and w.state = 2) for update skip locked))

-- name: doomed
-- The pending tasks with a parent that has failed or is gone, for the rules to cancel. Tasks that somebody else holds
-- are left for later.
select c.id
from (
  select d.child as id, min(d.n) as n
  from (select x.* from tusk.doubt x where x.n = any($1::bigint[]) offset 0) d
  cross join lateral (select o.policy from tusk.open_need o where o.parent = d.parent and o.child = d.child offset 0) o
  left join lateral (select x.state from tusk_fn.states_of(array[d.parent]) x limit 1) s on true
  where coalesce(s.state, 0) = 0 and o.policy in (0, 2) or s.state in (7, 8) and o.policy = 0
  group by d.child) c
cross join lateral (select w.* from tusk.waiting w where w.id = c.id and w.state = 2 for update skip locked) w
where w.key is null or exists (
  select from tusk.key k
  where k.queue = w.lane >> 16 and k.key = tusk_fn.tenant_key(w.tenant, w.key)
    and k.awaiting is distinct from w.id
  for update skip locked)
order by c.n

-- name: lock_doomed
select tusk_fn.lock_doomed($1, $2)

-- name: follow_clock
-- The leases of workers that last beat before the clock was set back start again from now. Otherwise the leader would
-- wait for them longer by that difference.
with ahead as materialized (
  select x.id from tusk.worker x where not x.dead and x.beat_at > clock_timestamp() + interval '1 second'
  order by x.id for no key update)
update tusk.worker w
set since = null, expires_at = c.now + (w.expires_at - w.beat_at), late_at = c.now + (w.late_at - w.beat_at),
  beat_at = c.now
from (select clock_timestamp() as now) c
where w.id = any(array(select a.id from ahead a)) and tusk_fn.hold_lead($1) is not null

-- name: expire_workers
-- Declares workers dead whose leases have expired. suspected_at is now, so that rescue looks for what they hold.
update tusk.worker w set dead = true, suspected_at = clock_timestamp()
where w.id = any(array(
    select x.id from tusk.worker x where not x.dead and x.expires_at <= clock_timestamp() order by x.id
    for no key update))
  and tusk_fn.hold_lead($1) is not null

-- name: miss_workers
-- Also declares workers dead that have lost their session, if the beat is overdue as well and the lock was already free
-- at an earlier check. A lock is tried only if the beat is overdue or will be within a second. Locks from before a
-- restart or a failover do not count.
update tusk.worker x set suspected_at = coalesce(x.suspected_at, m.now), dead = x.dead or m.suspected_at is not null
from (
  select u.id, u.beat_at, u.late_at, u.suspected_at, clock_timestamp() as now,
    pg_try_advisory_xact_lock({worker_lock}) as free
  from tusk.worker u
  where not u.dead and u.attended = pg_postmaster_start_time() and u.late_at <= clock_timestamp() + interval '1 second'
  offset 0) m
where m.free and (m.suspected_at is null or m.suspected_at <= m.now - interval '400 ms' and m.late_at <= m.now)
  and x.id = m.id and x.beat_at = m.beat_at and x.suspected_at is not distinct from m.suspected_at
  and tusk_fn.hold_lead($1) is not null

-- name: rescue
-- Up to $1 tasks that dead workers hold. The query reads all leases, and the dead rows of leases that have ended. It
-- does so only if a worker has died recently, or if $2 is true. It also finds claims that were still in progress when
-- the worker died, and strays. A stray is a task that a living worker does not know it holds: it was claimed before a
-- beat whose answer the worker has seen, but the latest beat does not name its lease.
select h.lane, h.id, h.kind, h.args, h.enqueued_at, h.attempt, h.crashes, h.run_at, h.expires_at, h.claimed_at,
  h.tenant, h.key, h.tags, h.settings, h.workflow, h.turn, h.partition, l.token, l.worker, tusk_fn.queue_of(h.lane),
  l.stray
from (
  select l.token, l.worker, pg_catalog.bool_or(w.id is not null) as stray
  from tusk.lease l
  left join tusk.worker w on w.id = l.worker and not w.dead
  left join (
    select x.id, h.token from tusk.worker x cross join pg_catalog.unnest(x.holds) h(token) where not x.dead) named
    on named.id = l.worker and named.token = l.token
  where (w.id is null or l.claimed_at < w.since and w.since <= clock_timestamp() and named.id is null)
    and ($2::boolean or exists (select from tusk.worker d
      where d.dead and greatest(d.beat_at, d.left_at, d.suspected_at) > clock_timestamp() - interval '1 minute'))
  group by l.token, l.worker
  order by 3, min(l.claimed_at)) l
cross join lateral (select x.* from tusk_fn.held x where x.token = l.token order by x.lane, x.xid, x.n) h
limit $1

-- name: spent_flushes
-- The next $7 flushes from xid $1 on, and all others of the last xid, in the order of their xids. The number of tasks
-- is null if they are not due, for instance because an open transaction may have seen them unfinished. The last column,
-- and $2 to $6, are as in due_flushes. The ids in firsts are counted by their size, so that large lists, which are
-- stored out of line and uncompressed, are not read: an id has 16 bytes, and the header less than 32.
select x.xid::text::bigint, x.lane, x.token, x.finished_at,
  case when x.finished_at <= now() - nullif(case when q.queue is null then $3::bigint else q.completed end, 0)::float8
      * interval '1 us' and tusk_fn.may_go(x.xid, $6::text::pg_snapshot)
    then coalesce((select sum(c) from pg_catalog.unnest(x.counts) c),
      greatest(pg_catalog.pg_column_size(x.firsts) / 16 - 1, 0)) end,
  x.finished_at > now() - $2::float8 * interval '1 us' and x.finished_at <= now()
from (
  select o.* from tusk.outcome o where o.xid >= $1::bigint::text::xid8 order by o.xid
  fetch first ($7::bigint) rows with ties) x
left join unnest($4::bigint[], $5::bigint[]) q(queue, completed) on q.queue = x.lane >> 16
order by x.xid

-- name: spent_dead
-- Due dead tasks among the $8 that ended after $7, oldest first, and the transactions in which they ended.
select d.id, d.xid::text::bigint
from {dead_due}
    and x.finished_at > $7 and x.finished_at <= coalesce((
      select y.finished_at from tusk.dead y where y.finished_at > $7 order by y.finished_at offset $8 limit 1),
      'infinity')
  order by x.finished_at
  limit $6) d

-- name: dead_looks
-- When the last of the tasks that were looked at ended, or null if there are no more, or none old enough for any queue.
select y.finished_at from tusk.dead y
where y.finished_at > $1 and y.finished_at <= now() - $3::float8 * interval '1 us'
order by y.finished_at offset $2 limit 1

-- name: prune_sums
-- Deletes statistics that are older than $1 microseconds.
delete from tusk.stat x using pg_catalog.unnest('{0,1,60,1440}'::int[]) m(minutes)
where x.minutes = m.minutes
  and x.at <= now() - $1::float8 * interval '1 us' - (m.minutes + 1)::float8 * interval '1 minute'

-- name: prune_late
-- Deletes old statistics of flushes that were never summed up.
update tusk.outcome x set stats = null
where x.ctid = any(case when (
    select y.finished_at <= now() - $1::float8 * interval '1 us' - interval '1 minute' from tusk.outcome y
    where y.xid >= (select e.upto from tusk.stat_end e) order by y.xid limit 1)
  then array(
    select y.ctid from tusk.outcome y
    where y.stats is not null and y.xid >= (select e.upto from tusk.stat_end e)
      and y.finished_at <= now() - $1::float8 * interval '1 us' - interval '1 minute'
    for update skip locked) else '{}'::tid[] end)

-- name: prune_failures
-- Deletes up to $2 groups of errors that no task belongs to any more.
delete from tusk.failure f
where f.ctid = any(array(
  select y.ctid from tusk.failure y
  where y.last_at <= now() - $1::float8 * interval '1 us'
    and not exists (select from tusk.waiting w where w.failure = y.fingerprint and w.kind = y.kind
      and w.lane >> 16 = y.queue and w.state = 5)
    and not exists (select from tusk.dead x where x.failure = y.fingerprint and x.kind = y.kind
      and x.lane >> 16 = y.queue and x.state = 8)
  limit $2 for update skip locked))

-- name: forget_workers
delete from tusk.worker w
where w.dead and w.beat_at < now() - $1::float8 * interval '1 us'
  and not exists (select from tusk.lease l where l.worker = w.id)

-- name: classes
select c.queue, c.class from tusk.class c

-- name: forget_classes
delete from tusk.class

-- name: put_classes
insert into tusk.class (queue, class) select x.queue, x.class from unnest($1::bigint[], $2::text[]) x(queue, class)
