-- What tasks wait for besides their run time: other tasks, and their turn.

-- +goose Up

-- `partition` is set on tasks that run in turns, `holds` is 1 while such a task
-- has its turn. `needs` is how many tasks it was enqueued to wait for, `needed`
-- is 1 when some task waits, or has waited, for this one: whoever ends a task
-- without it need not look for others.
alter table tusk_task add column workflow blob;
alter table tusk_task add column partition text;
alter table tusk_task add column holds integer;
alter table tusk_task add column needs integer;
alter table tusk_task add column needed integer;
create index tusk_task_workflow on tusk_task (workflow, id) where workflow is not null;

-- What tasks need, in their own order. `open` is null when the needed task has
-- ended as it should, or the task itself has ended; 1 while it is waited for; 2
-- when it has failed, so that the task is to be cancelled.
create table tusk_need (
    num        integer primary key,
    task       blob not null,
    needed     blob not null,
    on_failure integer not null,
    open       integer
);
create index tusk_need_task on tusk_need (task);
create index tusk_need_open on tusk_need (needed) where open is not null;
create index tusk_need_failed on tusk_need (num) where open = 2;

-- One row for each queue, tenant and partition in which a task has a turn (`held`
-- counts them) or waits for one; `since` is the position of who has waited longest.
create table tusk_turn (
    id        integer primary key,
    queue     text not null,
    tenant    text not null,
    partition text not null,
    held      integer not null default 0 check (held >= 0),
    since     integer,
    unique (queue, tenant, partition)
);
create index tusk_turn_since on tusk_turn (since) where since is not null;
create index tusk_turn_held on tusk_turn (queue, tenant, partition) where held > 0;

-- The tasks that wait for their turn and for nothing else. Positions of all turns
-- are given out from one count, in order of arrival.
create table tusk_line (
    pos      integer primary key,
    turn     integer not null,
    priority integer not null,
    task     blob not null unique
);
create index tusk_line_turn on tusk_line (turn);
create index tusk_line_order on tusk_line (turn, priority);

-- Why somebody wants a running task stopped.
alter table tusk_stop add column reason text;

-- +goose Down

-- Who waited for a turn may run. Who waited for others stays pending, until
-- somebody cancels it: it must not run before them.
insert into tusk_waiting (queue, state, tasks)
select t.queue, 1, count(*) from tusk_line l join tusk_turn t on t.id = l.turn where true group by t.queue
on conflict (queue, state) do update set tasks = tasks + excluded.tasks;
update tusk_waiting
set tasks = tasks - (select count(*) from tusk_line l join tusk_turn t on t.id = l.turn where t.queue = tusk_waiting.queue)
where state = 2;
delete from tusk_waiting where tasks = 0;
update tusk_task set state = 1 where id in (select task from tusk_line);

alter table tusk_stop drop column reason;
drop table tusk_line;
drop table tusk_turn;
drop table tusk_need;
drop index tusk_task_workflow;
alter table tusk_task drop column needed;
alter table tusk_task drop column needs;
alter table tusk_task drop column holds;
alter table tusk_task drop column partition;
alter table tusk_task drop column workflow;
