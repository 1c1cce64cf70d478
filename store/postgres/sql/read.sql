-- name: list
-- The newest tasks that match, of one place: its view, the conditions and the limit
-- are appended. A union of all places would be sorted as a whole before its limit
-- counts, so each place is asked for its own newest.
select s.lane, s.id, s.kind, s.args, s.enqueued_at, s.attempt, s.crashes, s.run_at, s.expires_at, s.claimed_at, s.tenant, s.key, s.tags,
  s.settings, s.workflow, s.turn, s.partition, s.token, s.worker, tusk.queue_of(s.lane), s.state, s.reason, s.finished_at
from tusk.

-- name: attempts
-- The ended attempts of tasks, oldest first, and the completion of each that completed.
select a.id, a.number, a.worker, a.started_at, a.ended_at, a.state, a.error, a.trace, a.fingerprint
from tusk.attempt a
where a.id = any($1)
order by a.id, a.n

-- name: completions
select s.id, s.attempt, o.worker, s.claimed_at, s.finished_at
from tusk.task_state s
cross join lateral (select t.* from tusk.task t where t.id = s.id order by t.xid desc, t.n desc limit 1) t
join tusk.outcome o on o.lane = t.lane and o.node = any(tusk.nodes_of(t.xid)) and t.id = any(o.ids)
where s.id = any($1) and s.state = 6

-- name: notes
select id, progress, output, logs from tusk.note where id = any($1)

-- name: needs
with n as materialized (select child, place, parent, policy from tusk.need where child = any($1)),
s as materialized (select x.id, max(x.state) as state from tusk.states_of(array(select distinct parent from n)) x group by x.id)
select n.child, n.parent, n.policy, coalesce(s.state, 0::smallint)
from n left join s on s.id = n.parent
order by n.child, n.place

-- name: stops
select id from tusk.stop where id = any($1)

-- name: count
select queue, state, tasks, oldest, clock_timestamp() from tusk.counts()

-- name: stats
select o.finished_at, o.stats from tusk.outcome o where o.stats is not null and o.finished_at >= $1 and o.finished_at < $2
union all
select s.at, s.stats from tusk.stat s where s.at >= $1 and s.at < $2

-- name: errors
select f.fingerprint, f.queue, f.kind, f.count, f.first_at, f.last_at, f.sample, f.sample_task,
  (select tusk.queue_of(f.queue << 16)),
  (select count(*) from tusk.waiting w where w.state = 5 and w.failure = f.fingerprint and w.kind = f.kind and w.lane >> 16 = f.queue),
  (select count(*) from tusk.dead d where d.state = 8 and d.failure = f.fingerprint and d.kind = f.kind and d.lane >> 16 = f.queue)
from tusk.failure f
where ($1 = '' or f.queue = $2) and ($3 = '' or f.kind = $3) and f.last_at >= $4
order by f.last_at desc, f.fingerprint, f.queue
limit $5

-- name: workers
select w.id, w.about, w.started_at, w.beat_at, w.expires_at,
  (select coalesce(sum(coalesce(bit_count(l.open), cardinality(l.ids)) - (
    select count(*) from tusk.finished f where f.token = l.token and f.id = any(l.ids))), 0)::bigint
   from tusk.lease l where l.worker = w.id)
from tusk.worker w
where not w.dead
order by w.started_at, w.id
