-- The tables and the two functions of "Database design for a massive cloud task
-- scheduler", as its text describes them: tasks of a tenant are fetched by their
-- physical row position, and deleted and moved to the history table in one
-- statement. Written for this comparison.

drop schema if exists article cascade;
create schema article;

create table article.task (
    id   bigint generated always as identity primary key,
    uid  int not null,
    ptid bigint,
    info text not null,
    created timestamptz not null default clock_timestamp()
);
create index task_tenant on article.task (uid, id);

create table article.task_history (
    id bigint not null, uid int not null, ptid bigint, info text not null,
    created timestamptz not null, finished timestamptz not null default clock_timestamp()
);

create function article.produce(_uid int, _infos text[]) returns void
language sql as $$
    insert into article.task (uid, info) select _uid, unnest(_infos);
$$;

create function article.consume(_uid int, _n int) returns setof text
language sql as $$
    with position as (
        select ctid from article.task where uid = _uid order by id limit _n for update skip locked
    ), gone as (
        delete from article.task where ctid = any (array(select ctid from position)) returning *
    ), kept as (
        insert into article.task_history (id, uid, ptid, info, created)
        select id, uid, ptid, info, created from gone
    )
    select info from gone;
$$;
