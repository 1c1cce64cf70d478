-- name: list
-- The newest tasks in one place that match. The place's view, the conditions and the limit are appended. A union of all
-- places would be sorted as a whole before the limit applies, so each place is queried for its own newest tasks. A call
-- of queue_of() would take longer than the subquery.
select s.lane, s.id, s.kind, s.args, s.enqueued_at, s.attempt, s.crashes, s.run_at, s.expires_at, s.claimed_at,
  s.tenant, s.key, s.tags, s.settings, s.workflow, s.turn, s.partition, s.token, s.worker,
  (select l.queue from tusk.lane l
   where l.id between (s.lane >> 16) << 16 and ((s.lane >> 16) << 16) + 65535 limit 1) as queue,
  s.state, s.reason, s.finished_at
from

-- name: list_of_few
-- In place of a view: the tasks with ids $1.
(
  select x.* from (select distinct u.id from pg_catalog.unnest($1::uuid[]) u(id)) u
  cross join lateral (select x.* from tusk_fn.state_of(u.id) x offset 0) x)

-- name: list_of_many
-- Like list_of_few. A flush has hundreds of tasks. If 16 or more of ids $1 come from one transaction, each flush of its
-- tasks is read only once, instead of once for each task.
(
  with s as materialized (
    select x.* from (select distinct u.id from pg_catalog.unnest($1::uuid[]) u(id)) u
    cross join lateral (select x.* from tusk_fn.spot_of(u.id) x offset 0) x),
  many as materialized (
    select s.lane, s.flushed as xid from s where s.flushed is not null group by 1, 2 having count(*) >= 16),
  o as materialized (
    select m.lane, m.xid, i.id, y.worker, y.claimed_at,
      tusk_fn.end_of(y.claimed_at, y.finished_at, y.ago[i.place]) as ended_at
    from many m
    cross join lateral (select x.* from tusk_fn.flushes_of(m.lane, m.xid) x offset 0) y
    cross join lateral tusk_fn.ids_of(y.firsts, y.counts) i
    where (i.id in (select u.id from pg_catalog.unnest($1::uuid[]) u(id))) is true
    union all
    select s.lane, s.flushed, s.id, f.worker, f.claimed_at, f.ended_at
    from s cross join lateral (select x.* from tusk_fn.flush_of(s.lane, s.flushed, s.id) x limit 1) f
    where s.flushed is not null
      and ((s.lane, s.flushed) in (select m.lane, m.xid from many m)) is not true)
  select s.id, s.state, s.lane, s.kind, s.args, s.enqueued_at, s.attempt, s.crashes, s.run_at, s.expires_at,
    coalesce(o.claimed_at, s.claimed_at) as claimed_at, s.tenant, s.key, s.tags, s.settings, s.failure, s.reason,
    coalesce(o.ended_at, s.finished_at) as finished_at, s.token, coalesce(o.worker, s.worker) as worker, s.workflow,
    s.turn, s.partition
  from s left join o on o.lane = s.lane and o.xid = s.flushed and o.id = s.id
  where s.flushed is null or o.worker is not null)

-- name: details
-- Details of the tasks on a page, which have ids $1 between $2 and $3: their ended attempts (1), notes (2), needs (3),
-- and whether they were asked to stop (4). Each part has columns of its own. The states of needed tasks are left out if
-- those tasks are on the page, which has their states, or if $4 is true. A subquery with an offset is read by its index
-- for each id, whereas a join might read the whole table. The planner is not told how many ids there are: it would make
-- a plan for each call, which takes longer than the call. A table that has nothing between $2 and $3 is not searched by
-- id.
with q as materialized (
  select distinct u.id from (select $1::uuid[] as ids offset 0) a, pg_catalog.unnest(a.ids) u(id)),
need as materialized (
  select n.* from q cross join lateral (select x.* from tusk.need x where x.child = q.id offset 0) n
  where (select x.child from tusk.need x where x.child >= $2 order by x.child limit 1) <= $3),
parent as materialized (
  select x.id, max(x.state) as state
  from tusk_fn.states_of(array(
    select n.parent from need n where not $4 and not exists (select from q where q.id = n.parent) group by 1)) x
  group by x.id)
select 1 as part, a.id, a.n as place, a.number, a.state, a.worker, a.started_at, a.ended_at, a.error, a.trace,
  a.fingerprint, null::jsonb as progress, null::bytea as output, null::jsonb as logs, null::uuid as parent,
  null::smallint as policy, null::timestamptz as changed_at, null::text as changed
from q
cross join lateral (select x.* from tusk.attempt x where x.id = q.id offset 0) a
where (select x.id from tusk.attempt x where x.id >= $2 order by x.id limit 1) <= $3
union all
select 2, n.id, 0, null, null, null, null, null, null, null, null, n.progress, n.output, n.logs, null, null,
  n.changed_at, n.changed
from q
cross join lateral (select x.* from tusk.note x where x.id = q.id offset 0) n
where (select x.id from tusk.note x where x.id >= $2 order by x.id limit 1) <= $3
union all
select 3, n.child, n.place, null, p.state, null, null, null, null, null, null, null, null, null,
  n.parent, n.policy, null, null
from need n
left join parent p on p.id = n.parent
union all
select 4, s.id, 0, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null
from q
cross join lateral (select x.* from tusk.stop x where x.id = q.id offset 0) s
where (select x.id from tusk.stop x where x.id >= $2 order by x.id limit 1) <= $3
  and exists (select from tusk_fn.running r where r.token = s.token and r.id = s.id)
order by part, id, place

-- name: count
-- Unfinished tasks by queue and state.
select c.queue, c.state, c.tasks, c.oldest, clock_timestamp()
from (
  select tusk_fn.queue_of(w.lane) as queue, w.state::int, w.tasks, null::timestamptz as oldest
  from (
    select min(x.lane) as lane, x.state, sum(x.tasks)::bigint as tasks
    from ( -- index-only scans
      select min(lane) as lane, state, count(*) as tasks from tusk.waiting
      where line is null and lane >= (-1::bigint << 63) group by lane >> 16, state
      union all
      select min(lane), 2, count(*) from tusk.unready where line is not null group by lane >> 16) x
    group by x.lane >> 16, x.state) w
  union all
  select tusk_fn.queue_of(r.lane), 4, r.tasks, null
  from (select min(l.lane) as lane, sum(l.tasks)::bigint as tasks from tusk_fn.load l group by l.lane >> 16) r
  union all
  select min(d.queue), 3, sum(d.tasks)::bigint, min(d.oldest)
  from tusk_fn.depth d
  group by d.lane >> 16) c

-- name: stats
-- Statistics from $1 to $2: between $3 and $4 in sums of $5 minutes, before and after by the minute, and those that are
-- not summed up yet, up to $6.
select s.at, s.stats from tusk.stat s where s.minutes = $5 and s.at >= $3 and s.at < $4
union all
select s.at, s.stats from tusk.stat s where s.minutes = 1 and s.at >= $1 and s.at < $3
union all
select s.at, s.stats from tusk.stat s where s.minutes = 1 and s.at >= $4 and s.at < $2
union all
select s.at, s.stats from tusk.stat s where s.minutes = 0 and s.at >= $1 and s.at < $6
union all
select o.finished_at, o.stats from tusk.outcome o
where o.stats is not null and o.xid >= (select e.upto from tusk.stat_end e)
  and o.finished_at >= $1 and o.finished_at < $6
union all
select o.finished_at, o.stats from tusk.outcome o
where o.stats is not null and o.xid = any(array(select pg_catalog.unnest(e.late) from tusk.stat_end e))
  and o.finished_at >= $1 and o.finished_at < $6

-- name: errors
with g as (
  select * from tusk.failure f
  where ($1 = '' or f.queue = $2) and ($3 = '' or f.kind = $3) and f.last_at >= $4
  order by f.last_at desc, f.fingerprint, f.queue
  limit $5),
w as (
  select x.lane >> 16 as queue, x.kind, x.failure, count(*) as tasks from tusk.waiting x
  where x.state = 5 and x.failure = any(array(select g.fingerprint from g)) group by 1, 2, 3),
d as (
  select x.lane >> 16 as queue, x.kind, x.failure, count(*) as tasks from tusk.dead x
  where x.state = 8 and x.failure = any(array(select g.fingerprint from g)) group by 1, 2, 3)
select g.fingerprint, g.queue, g.kind, g.count, g.first_at, g.last_at, g.sample, g.sample_task,
  tusk_fn.queue_of(g.queue << 16),
  coalesce(w.tasks, 0), coalesce(d.tasks, 0)
from g
left join w on w.queue = g.queue and w.kind = g.kind and w.failure = g.fingerprint
left join d on d.queue = g.queue and d.kind = g.kind and d.failure = g.fingerprint
order by g.last_at desc, g.fingerprint, g.queue

-- name: workers
select w.id, w.about, w.started_at, w.beat_at, w.expires_at, coalesce(l.tasks, 0)
from tusk.worker w
left join (select l.worker, sum(l.tasks)::bigint as tasks from tusk_fn.load l group by l.worker) l on l.worker = w.id
where not w.dead
order by w.started_at, w.id
