-- A queue as described in "Task queue on PostgreSQL" (habr 481556): a status column, an
-- index on it and the priority, tasks taken one by one with skip locked, and the columns
-- with which the article measures times.

drop schema if exists onebyone cascade;
create schema onebyone;

create table onebyone.task (
  id       bigint      generated always as identity primary key,
  status   smallint    not null default 0, -- 0 new, 1 running, 2 done
  priority int         not null default 0,
  attempt  int         not null default 0,
  args     text        not null,
  created  timestamptz not null default clock_timestamp(),
  began    timestamptz,
  ended    timestamptz
);
create index task_status on onebyone.task (status, priority, id);
