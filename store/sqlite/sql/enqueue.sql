-- name: task.add
insert into tusk_task (id, kind, priority, state, lane, pos, args, tenant, tags, key, settings, enqueued_at, run_at, expires_at,
                       workflow, partition, needs, turn, place)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict (id) do nothing;

-- name: task.become
update tusk_task
set kind = ?, priority = ?, args = ?, tags = ?, settings = ?, run_at = ?, expires_at = ?
where num = ?;

-- name: task.find
select t.num, t.id, t.kind, t.priority, t.state, t.lane, t.pos, t.args, t.tenant, t.tags, t.key, t.settings,
       t.attempt, t.crashes, t.reason, t.failure, t.enqueued_at, t.run_at, t.expires_at, t.workflow, t.partition,
       t.claimed_at, t.finished_at, t.worker, l.cursor, t.needs, t.needed, t.turn, t.place
from tusk_task t
left join tusk_lane l on l.id = t.lane
where t.id = ?;

-- name: task.wait
update tusk_task
set state = ?, lane = null, pos = null, run_at = ?
where num = ?;

-- name: task.place
update tusk_task
set state = 3, lane = ?, pos = ?, run_at = ?
where num = ?;

-- name: tag.add
insert into tusk_tag (tag, id) values (?, ?) on conflict do nothing;

-- name: tag.drop
delete from tusk_tag where tag = ? and id = ?;

-- name: key.find
select task, awaiting, source, tasks from tusk_key where queue = ? and tenant = ? and key = ?;

-- name: key.write
insert into tusk_key (queue, tenant, key, task, awaiting, source, tasks) values (?, ?, ?, ?, ?, ?, ?)
on conflict (queue, tenant, key) do update
set task = excluded.task, awaiting = excluded.awaiting, source = excluded.source, tasks = excluded.tasks;

-- name: key.drop
delete from tusk_key where queue = ? and tenant = ? and key = ?;
