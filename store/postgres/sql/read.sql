-- name: list
-- The newest tasks that match, of one place: its view, the conditions and the limit
-- are appended. A union of all places would be sorted as a whole before its limit
-- counts, so each place is asked for its own newest.
select s.lane, s.id, s.kind, s.args, s.enqueued_at, s.attempt, s.crashes, s.run_at, s.expires_at, s.claimed_at, s.tenant, s.key, s.tags,
  s.settings, s.workflow, s.turn, s.partition, s.token, s.worker, tusk_fn.queue_of(s.lane), s.state, s.reason, s.finished_at
from

-- name: list_of
-- The same of ids $1.
(select distinct u.id from pg_catalog.unnest($1::uuid[]) u(id)) q
cross join lateral (select x.* from tusk_fn.state_of(q.id) x offset 0) s

-- name: attempts
-- The ended attempts of tasks, oldest first, and the completion of each that completed.
select a.id, a.number, a.worker, a.started_at, a.ended_at, a.state, a.error, a.trace, a.fingerprint
from (select distinct u.id from pg_catalog.unnest($1::uuid[]) u(id)) q
cross join lateral (select x.* from tusk.attempt x where x.id = q.id offset 0) a
order by a.id, a.n

-- name: completions
select s.id, s.attempt, o.worker, s.claimed_at, s.finished_at
from (select distinct u.id from pg_catalog.unnest($1::uuid[]) u(id)) q
cross join lateral (select s.* from tusk_fn.state_of(q.id) s where s.state = 6 offset 0) s
cross join lateral (select t.* from tusk_fn.rows_of(q.id) t order by t.xid desc, t.n desc limit 1) t
cross join lateral tusk_fn.flush_of(t.lane, t.xid, q.id) o

-- name: notes
select id, progress, output, logs from tusk.note where id = any($1)

-- name: needs
with n as materialized (select child, place, parent, policy from tusk.need where child = any($1)),
s as materialized (select x.id, max(x.state) as state from tusk_fn.states_of(array(select distinct parent from n)) x group by x.id)
select n.child, n.parent, n.policy, coalesce(s.state, 0::smallint)
from n left join s on s.id = n.parent
order by n.child, n.place

-- name: stops
select s.id from tusk.stop s
where s.id = any($1) and exists (select from tusk_fn.running r where r.token = s.token and r.id = s.id)

-- name: count
select queue, state, tasks, oldest, clock_timestamp() from tusk_fn.counts()

-- name: stats
-- From $1 to $2, between $3 and $4 in sums of $5 minutes, around them by the minute;
-- and of flushes, up to $6, that nobody has summed up yet.
select s.at, s.stats from tusk.stat s where s.minutes = $5 and s.at >= $3 and s.at < $4
union all
select s.at, s.stats from tusk.stat s where s.minutes = 1 and s.at >= $1 and s.at < $3
union all
select s.at, s.stats from tusk.stat s where s.minutes = 1 and s.at >= $4 and s.at < $2
union all
select s.at, s.stats from tusk.stat s where s.minutes = 0 and s.at >= $1 and s.at < $6
union all
select o.finished_at, o.stats from tusk.outcome o
where o.stats is not null and o.xid >= (select e.upto from tusk.stat_end e) and o.finished_at >= $1 and o.finished_at < $6
union all
select o.finished_at, o.stats from tusk.outcome o
where o.stats is not null and o.xid = any(array(select pg_catalog.unnest(e.late) from tusk.stat_end e)) and o.finished_at >= $1 and o.finished_at < $6

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
select g.fingerprint, g.queue, g.kind, g.count, g.first_at, g.last_at, g.sample, g.sample_task, tusk_fn.queue_of(g.queue << 16),
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
