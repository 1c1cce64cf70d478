-- name: task.add
insert into tusk_task (id, kind, priority, state, lane, pos, args, tenant, tags, key, settings,
                       enqueued_at, run_at, expires_at, workflow, partition, open, needed, turn, place)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict (id) do nothing;

-- name: task.restore
-- A restored task gets a number below all others. Numbers from 1 on are in the order in which tasks were enqueued.
insert into tusk_task (num, id, kind, priority, state, args, tenant, tags, key, settings, attempt, crashes, reason,
                       failure, enqueued_at, run_at, expires_at, claimed_at, finished_at, workflow, partition, open,
                       needed)
values (min(coalesce((select min(num) from tusk_task), 0), 0) - 1,
        ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)
returning num;

-- name: task.become
update tusk_task
set kind = ?, priority = ?, args = ?, tags = ?, settings = ?, run_at = ?, expires_at = ?
where num = ?;

-- name: task.find
-- The columns that the rules read. They do not need args, settings, or columns that they never change.
select t.num, t.id, t.kind, t.priority, t.state, t.lane, t.pos, null as args, t.tenant, t.tags, t.key, null as settings,
       t.attempt, t.crashes, t.reason, t.failure, null as enqueued_at, t.run_at, null as expires_at, null as workflow,
       t.partition, t.claimed_at, t.finished_at, t.worker, l.cursor, t.open, t.needed, t.turn, t.place,
       t.state = 2 and t.key is not null and exists (
           select 1
           from tusk_kind d
           cross join tusk_key k on k.queue = d.queue and k.tenant = coalesce(t.tenant, '') and k.key = t.key
           where d.id = t.kind and k.awaiting = t.id) as awaits,
       iif(t.state = 3, (select coalesce(s.reason, '') from tusk_stop s where s.task = t.id), null) as stop
from json_each(?) j
cross join tusk_task t indexed by tusk_task_id on t.id = unhex(j.value)
left join tusk_lane l on l.id = t.lane;

-- name: tag.add
insert into tusk_tag (tag, id) values (?, ?) on conflict do nothing;

-- name: tag.drop
delete from tusk_tag where tag = ? and id = ?;

-- name: key.find
select task, awaiting, source, tasks, ended from tusk_key where queue = ? and tenant = ? and key = ?;

-- name: key.write
insert into tusk_key (queue, tenant, key, task, awaiting, ended, source, tasks) values (?, ?, ?, ?, ?, ?, ?, ?)
on conflict (queue, tenant, key) do update
set task = excluded.task, awaiting = excluded.awaiting, ended = excluded.ended, source = excluded.source,
    tasks = excluded.tasks;

-- name: key.drop
delete from tusk_key where queue = ? and tenant = ? and key = ?;
