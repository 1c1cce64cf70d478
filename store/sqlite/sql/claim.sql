-- name: claim.probe
select 1 from tusk_lane indexed by tusk_lane_ready where queue = ? and available > 0 limit 1;

-- name: claim.lanes
select id, tail, cursor, available, running, priority
from tusk_lane indexed by tusk_lane_ready
where queue = ? and available > 0
order by priority;

-- name: claim.tasks
-- SQLite would plan the query again for each new value of a bare "limit ?".
select num, id, kind, priority, state, lane, pos, args, tenant, tags, key, settings,
       attempt, crashes, reason, failure, enqueued_at, run_at, expires_at, workflow, partition
from tusk_task indexed by tusk_task_lane
where lane = ? and pos > ?
order by pos
limit 0 + ?;

-- name: lease.add
insert into tusk_lease (lane, first, last, open, token, worker, claimed_at) values (?, ?, ?, ?, ?, ?, ?);

-- name: lease.find
select lane, first, last, open, token, worker, claimed_at
from tusk_lease
where token = ?
order by lane, first;

-- name: lease.all
select lane, first, last, open, token, worker, claimed_at from tusk_lease;

-- name: lease.tasks
select num, id, kind, priority, state, lane, pos, args, tenant, tags, key, settings,
       attempt, crashes, reason, failure, enqueued_at, run_at, expires_at, workflow, partition
from tusk_task indexed by tusk_task_lane
where lane = ? and pos between ? and ? and state = 3
order by pos
limit 0 + ?;

-- name: lease.write
update tusk_lease set open = ? where token = ? and lane = ? and first = ?;

-- name: lease.drop
delete from tusk_lease where token = ? and lane = ? and first = ?;

-- name: worker.dead
select dead, seq from tusk_worker where id = ?;
