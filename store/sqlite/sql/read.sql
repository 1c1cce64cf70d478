-- name: list.columns
select t.num, t.id, t.kind, t.priority, t.state, t.lane, t.pos, t.args, t.tenant, t.tags, t.key, t.settings,
       t.attempt, t.crashes, t.reason, t.failure, t.enqueued_at, t.run_at, t.expires_at, t.workflow, t.partition,
       t.claimed_at, t.finished_at, t.worker, l.cursor, t.open, t.needed, t.turn, t.place

-- name: list.kinds
select id from tusk_kind
where (?1 is null or queue in (select value from json_each(?1)))
  and (?2 is null or kind in (select value from json_each(?2)));

-- name: list.failures
select id from tusk_error where fingerprint = ?;

-- name: list.available
select coalesce(sum(available), 0) from tusk_lane indexed by tusk_lane_ready where available > 0;

-- name: list.available.ids
select t.id
from tusk_lane l indexed by tusk_lane_ready
cross join tusk_task t indexed by tusk_task_lane on t.lane = l.id and t.pos > l.cursor
where l.available > 0;

-- name: list.running
select coalesce(sum(open), 0) from tusk_lease;

-- name: list.running.ids
select t.id
from tusk_lease s
cross join tusk_task t indexed by tusk_task_lane on t.lane = s.lane and t.pos between s.first and s.last
where t.state = 3;

-- name: list.ends
select (select min(num) from tusk_task), (select max(num) from tusk_task);

-- name: list.from
select num, enqueued_at from tusk_task where num >= ? order by num limit 1;

-- name: list.beside
-- Whether tasks with numbers from ?1 to ?2 and ids from ?3 to ?4 have attempts, notes, logs or requests to stop. The
-- tasks of most pages have none.
select exists (select 1 from tusk_attempt where task between ?1 and ?2),
       exists (select 1 from tusk_note where task between ?1 and ?2),
       exists (select 1 from tusk_log where task between ?1 and ?2),
       exists (select 1 from tusk_stop where task between ?3 and ?4);

-- name: list.note
select output, percent, message, changed_at, changed from tusk_note where task = ?;

-- name: list.logs
select at, attempt, level, text from tusk_log where task = ? order by n;

-- name: list.attempts
select number, worker, started_at, ended_at, outcome, error, trace, fingerprint
from tusk_attempt where task = ? order by n;

-- name: list.stop
select 1 from tusk_stop where task = ?;

-- name: count.lanes
select queue, available, running,
       (select t.run_at from tusk_task t indexed by tusk_task_lane
        where t.lane = tusk_lane.id and t.pos > tusk_lane.cursor order by t.pos limit 1)
from tusk_lane
where available > 0 or running > 0;

-- name: count.waiting
select queue, state, tasks from tusk_waiting;

-- name: worker.list
select w.id, w.host, w.pid, w.queues, w.concurrency, w.version, w.kinds, w.started_at, w.beat_at, w.expires_at, w.hung
from tusk_worker w indexed by tusk_worker_living
where w.dead = 0
order by w.started_at, w.id;
