-- The article's two statements with what a queue also needs: a primary key, an index for
-- the order of tasks, and a history in which a task can be found.

drop schema if exists ordered cascade;
create schema ordered;

create table ordered.task (
  id      bigint      generated always as identity primary key,
  uid     int         not null,
  ptid    bigint,
  info    text        not null,
  created timestamptz not null default clock_timestamp()
);
create index task_tenant on ordered.task (uid, id);

create table ordered.task_history (
  id       bigint      not null primary key,
  uid      int         not null,
  ptid     bigint,
  info     text        not null,
  created  timestamptz not null,
  finished timestamptz not null default clock_timestamp()
);

create function ordered.produce(_uid int, _infos text[]) returns void language sql as $$
  insert into ordered.task (uid, info) select _uid, unnest(_infos);
$$;

create function ordered.consume(_uid int, _n int) returns setof text language sql as $$
  with place as (
    select ctid from ordered.task where uid = _uid order by id limit _n for update skip locked),
  gone as (
    delete from ordered.task where ctid = any (array(select ctid from place)) returning *),
  kept as (
    insert into ordered.task_history (id, uid, ptid, info, created)
    select id, uid, ptid, info, created from gone)
  select info from gone;
$$;
