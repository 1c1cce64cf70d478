-- name: clock
select :now

-- name: task.insert
insert into tusk_task (place, n, id, queue, kind, priority, state, lap, attempt, crashes, enqueued_at, run_at,
    expires_at, claimed_at, finished_at, worker, tenant, tkey, tags, settings, workflow, part, needs, needed, awaits,
      turn, args)
values :rows

-- name: task.restore
insert into tusk_task (place, n, id, queue, kind, priority, state, lap, attempt, crashes, enqueued_at, run_at,
    expires_at, claimed_at, finished_at, worker, failure, fingerprint, tenant, tkey, tags, settings, reason, workflow,
    part, needs, needed, awaits, turn, args)
values :rows

-- name: task.become
update tusk_task force index (primary)
set kind = ?, expires_at = ?, tags = ?, settings = ?, args = ?
where place = ? and n = ?

-- name: task.save
update tusk_task force index (primary)
set worker = '':set
where :tasks

-- name: ready.insert
insert into tusk_ready (queue, priority, at, place, first, next, last, lap)
values :rows

-- name: waiting.insert
insert into tusk_waiting (run_at, place, n)
values :rows

-- name: label.insert
insert ignore into tusk_label (label, id, place, n)
values :rows

-- name: label.clear
delete from tusk_label where place = ? and n = ?

-- name: delta.add
insert into tusk_delta (at, body) values (:now, ?)

-- name: key.insert
insert into tusk_key (queue, tenant, tkey) values :rows
on duplicate key update queue = queue

-- name: key.lock
select k.queue, k.tenant, k.tkey, k.task, k.place, k.n, k.awaiting, k.awaiting_place, k.awaiting_n, k.ended, k.source,
  k.tasks
from (:keys) x
straight_join tusk_key k force index (primary) on k.queue = x.queue and k.tenant = x.tenant and k.tkey = x.tkey
for update

-- name: key.write
insert into tusk_key (queue, tenant, tkey, task, place, n, awaiting, awaiting_place, awaiting_n, ended, source, tasks)
values :rows
on duplicate key update task = values(task), place = values(place), n = values(n), awaiting = values(awaiting),
    awaiting_place = values(awaiting_place), awaiting_n = values(awaiting_n), ended = values(ended),
    source = values(source), tasks = values(tasks)

-- name: key.delete
delete k
from (:keys) x
straight_join tusk_key k force index (primary) on k.queue = x.queue and k.tenant = x.tenant and k.tkey = x.tkey

-- name: ready.find
select queue, priority, at, place, first, next, last, lap
from tusk_ready force index (tusk_ready_place)
where :near

-- name: ready.lock
select y.at, y.place, y.first, y.next, y.last, y.lap
from (:ready) x
straight_join tusk_ready y force index (primary)
    on y.queue = ? and y.priority = ? and y.at = x.at and y.place = x.place and y.first = x.first
for update

-- name: ready.drop
-- Joined, because a condition on all rows might lock the rows between them.
delete y from (:ready) x
straight_join tusk_ready y force index (primary)
    on y.queue = ? and y.priority = ? and y.at = x.at and y.place = x.place and y.first = x.first

-- name: task.lock
select :columns without args
from tusk_task force index (primary)
where :tasks
order by place, n
for update

-- name: task.hold
select n
from tusk_task force index (primary)
where :tasks
order by place, n
for update

-- name: task.read
select :columns
from tusk_task force index (primary)
where :tasks
order by place, n

-- name: task.read without args
select :columns without args
from tusk_task force index (primary)
where :tasks
order by place, n

-- name: task.find
select place, n, lap, id, state, queue, tenant, tkey
from tusk_task force index (tusk_task_id)
where id in (:rows)

-- name: need.insert
insert into tusk_need (place, n, i, needed, on_failure, open)
values :rows

-- name: need.flag
update tusk_task force index (primary) set needed = 1 where needed = 0 and :tasks

-- name: need.children
select place, n, needed, on_failure
from tusk_need force index (tusk_need_needed)
where needed in (:rows) and open = 1

-- name: need.met
update tusk_need force index (tusk_need_needed) set open = 0 where needed = ? and :tasks

-- name: need.met of many
update tusk_need force index (primary) set open = 0 where needed = ? and :tasks

-- name: need.of
select place, n, needed, on_failure, open
from tusk_need force index (primary)
where :tasks
order by place, n, i

-- name: need.clear
delete t from (:tasks) x straight_join tusk_need t force index (primary) on t.place = x.place and t.n = x.n

-- name: doomed.add
insert ignore into tusk_doomed (place, n) values :rows

-- name: doomed.some
select place, n from tusk_doomed force index (primary) where place > ? or place = ? and n > ? order by place, n limit ?

-- name: doomed.delete
delete t from (:tasks) x straight_join tusk_doomed t force index (primary) on t.place = x.place and t.n = x.n
