-- name: list.tasks
select :columns of t
from tusk_task t :index
where :filter
order by t.id desc
limit ?

-- name: list.labelled
select :columns of t
from tusk_label l force index (primary)
straight_join tusk_task t force index (primary) on t.place = l.place and t.n = l.n
where :filter
order by l.id desc
limit ?

-- name: list.ready
select place, next, last, lap
from tusk_ready force index (primary)
:queues
limit ?

-- name: list.line
select place, n, n, 0
from tusk_line force index (tusk_line_group)
:queues
limit ?

-- name: kind.next
-- A minimum is one lookup, whatever the optimizer believes. With order by and limit 1, MySQL may read the whole index.
select min(kind) from tusk_task force index (tusk_task_kind) where queue = ? and kind > ?

-- name: queue.next
select min(queue) from tusk_task force index (tusk_task_kind) where queue > ?

-- name: attempt.read
select place, n, lap, number, worker, started_at, ended_at, outcome, error, trace, fingerprint
from tusk_attempt force index (primary)
where :tasks
order by place, n, lap

-- name: note.read
select place, n, body
from tusk_note force index (primary)
where :tasks
order by place, n, seq

-- name: stop.read
select place, n, lap
from tusk_stop force index (primary)
where :tasks

-- name: ready.next lane
-- The lane after that of a queue and priority, and when its first task was due.
select r.queue, r.priority, coalesce(t.run_at, :now)
from (
    (select queue, priority, place, next from tusk_ready force index (primary)
     where queue = ? and priority > ?
     order by queue, priority, at, place, first
     limit 1)
    union all
    (select queue, priority, place, next from tusk_ready force index (primary)
     where queue > ?
     order by queue, priority, at, place, first
     limit 1)
    order by queue, priority
    limit 1
) r
left join tusk_task t force index (primary) on t.place = r.place and t.n = r.next
