-- name: leader.find
select id, term, expires_at from tusk_leader where one = 1;

-- name: leader.write
update tusk_leader set id = ?, term = ?, expires_at = ? where one = 1;

-- name: admit.next
select run_at from tusk_task indexed by tusk_task_waiting
where state in (1, 5)
order by run_at
limit 1;

-- name: admit.due
select id from tusk_task indexed by tusk_task_waiting
where state in (1, 5) and run_at <= ?
order by run_at
limit 0 + ?;

-- name: rescue.late
select 1 from tusk_worker indexed by tusk_worker_living where dead = 0 and expires_at <= ? limit 1;

-- name: rescue.bury
update tusk_worker indexed by tusk_worker_living set dead = 1 where dead = 0 and expires_at <= ?;

-- name: rescue.leases
select lane, first, last, open, token, worker, claimed_at
from tusk_lease
where exists (select 1 from tusk_worker indexed by tusk_worker_dead where dead > 0)
  and (select dead from tusk_worker where id = tusk_lease.worker) > 0
order by claimed_at, lane, first;

-- name: rescue.strays
select lane, first, last, open, token, worker, claimed_at
from tusk_lease
where exists (
    select 1 from tusk_worker w
    where w.id = tusk_lease.worker and w.dead = 0 and tusk_lease.claimed_at < w.since and w.since <= ?
      and instr(w.holds, tusk_lease.token) = 0)
order by claimed_at, lane, first;

-- name: prune.kinds
select id, queue from tusk_kind;

-- name: prune.any
select 1
where exists (select 1 from tusk_stat where at <= ?1)
   or exists (select 1 from tusk_worker w indexed by tusk_worker_dead
              where w.dead > 0 and w.beat_at < ?2 and w.id not in (select worker from tusk_lease))
   or exists (select 1 from tusk_turn indexed by tusk_turn_since
              where since is null
                and not exists (select 1 from tusk_task t indexed by tusk_task_holds
                                where t.turn = tusk_turn.id and t.place is null and t.state < 6))
   or exists (select 1 from tusk_error indexed by tusk_error_last
              where last <= ?1
                and not exists (select 1 from tusk_task t indexed by tusk_task_failure where t.failure = tusk_error.id))
   or exists (select 1 from tusk_lane
              where available = 0 and running = 0
                and not exists (select 1 from tusk_task t indexed by tusk_task_lane where t.lane = tusk_lane.id));

-- name: prune.first
select 1 from tusk_task indexed by tusk_task_finished
where kind = ? and state = ? and finished_at <= ?
limit 1;

-- name: prune.plain
-- Deletes those of the oldest tasks that have nothing else to delete or update with them.
delete from tusk_task
where num in (
    select num
    from (
        select num, key, tags, failure, needed from tusk_task indexed by tusk_task_finished
        where kind = ? and state = ? and finished_at <= ?
        order by finished_at
        limit 0 + ?)
    where key is null and tags is null and failure is null and needed is null);

-- name: prune.tasks
select id from tusk_task indexed by tusk_task_finished
where kind = ? and state = ? and finished_at <= ?
order by finished_at
limit 0 + ?;

-- name: due.tasks
-- Old tasks after a given one, in the order of the index.
select id, finished_at, num from tusk_task indexed by tusk_task_finished
where kind = ? and state = ? and finished_at <= ? and (finished_at, num) > (?, ?)
order by finished_at, num
limit 0 + ?;

-- name: prune.stats
delete from tusk_stat
where (at, kind) in (select at, kind from tusk_stat where at <= ? order by at, kind limit 0 + ?);

-- name: prune.turns
delete from tusk_turn indexed by tusk_turn_since
where since is null
  and not exists (select 1 from tusk_task t indexed by tusk_task_holds
                  where t.turn = tusk_turn.id and t.place is null and t.state < 6);

-- name: prune.errors
-- Deletes groups of errors that no task refers to.
delete from tusk_error
where id in (
    select id from tusk_error indexed by tusk_error_last
    where last <= ?
      and not exists (select 1 from tusk_task t indexed by tusk_task_failure where t.failure = tusk_error.id)
    limit 0 + ?);

-- name: prune.lanes
-- Deletes lanes that have no task left.
delete from tusk_lane
where available = 0 and running = 0
  and not exists (select 1 from tusk_task t indexed by tusk_task_lane where t.lane = tusk_lane.id);

-- name: prune.workers
delete from tusk_worker indexed by tusk_worker_dead
where dead > 0 and beat_at < ? and id not in (select worker from tusk_lease);

-- name: forget.task
delete from tusk_task where num = ?;
