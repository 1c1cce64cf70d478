-- The founding articles' tables and statements for PostgreSQL, as their texts
-- describe them, written for this comparison.

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

-- name: moved
-- "Database design for a massive cloud task scheduler": tasks of a tenant, deleted
-- and moved to the history in one statement, found by their physical position.
create table moved_task (
    id bigint generated always as identity primary key,
    uid int not null, ptid bigint, info text not null,
    created timestamptz not null default clock_timestamp()
) with (autovacuum_enabled = off);
create index moved_task_tenant on moved_task (uid, id);
create table moved_history (
    id bigint not null, uid int not null, ptid bigint, info text not null,
    created timestamptz not null, finished timestamptz not null default clock_timestamp()
);

-- name: moved produce
insert into moved_task (uid, info) select * from unnest($1::int[], $2::text[])

-- name: moved consume
with position as (
    select ctid from moved_task where uid = $1 order by id limit $2 for update skip locked
), gone as (
    delete from moved_task where ctid = any (array(select ctid from position))
    returning id, uid, ptid, info, created
), kept as (
    insert into moved_history (id, uid, ptid, info, created) select id, uid, ptid, info, created from gone
)
select info from gone
