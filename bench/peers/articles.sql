-- The table and the statements of a founding article for PostgreSQL, written for this
-- comparison as its text describes them. Those of the other article are in article.sql.

-- name: status
-- "Task queue on PostgreSQL": a status column, one task at a time.
create table status_task (
    id bigint generated always as identity primary key,
    status text not null default 'new',
    priority int not null default 0,
    args text not null,
    created timestamptz not null default now(), updated timestamptz not null default now(),
    begun timestamptz, ended timestamptz
);
create index status_task_new on status_task (status, priority, id);

-- name: status claim
update status_task set status = 'running', begun = now(), updated = now()
where id = (select id from status_task where status = 'new' order by priority, id limit 1 for update skip locked)
returning id, args

-- name: status done
update status_task set status = 'done', ended = now(), updated = now() where id = $1
