-- The design of "Cloud Massive Task Scheduling System Database Design" (Alibaba Cloud,
-- RDS PostgreSQL cases), in our own words, and how this file implements it:
--
--   "Initial task table": uid, ptid, tid, state, retry, info, ts, without a primary
--   key and without an index; the history table has the same columns. A pair of
--   tables for each user (the article makes a thousand of each).
--   Producing: a function inserts a row into the user's table by dynamic SQL. Here
--   it inserts a batch, because our producers insert batches.
--   Consuming: a function takes row positions (ctid) of the user's table under a limit,
--   deletes them, and inserts what was deleted into the history table, in one
--   statement. It says that a user's tasks can be run in parallel, so the positions are
--   taken with "for update skip locked" in place of its optional advisory lock. Here
--   it returns the args, for the handler.
--   Autovacuum is off for its tables, which it empties by rotation.
--
-- There is no order, no search of a task by its id, and no recovery of tasks after a crash
-- of the process that took them: the article's functions have none of that.

drop schema if exists article cascade;
create schema article;

create function article.add_user(_uid int) returns void language plpgsql as $$
begin
  execute format('create table article.%I (
    uid int, ptid bigserial, tid serial, state int default 1, retry int default -1, info text, ts timestamp
  ) with (autovacuum_enabled = off)', 'task_init_' || _uid);
  execute format('create table article.%I (
    uid int, ptid bigint, tid int, state int default 1, retry int default -1, info text, ts timestamp
  ) with (autovacuum_enabled = off)', 'task_hist_' || _uid);
end $$;
select article.add_user(1);

create function article.produce(_uid int, _infos text[]) returns void language plpgsql as $$
begin
  execute format(
    'insert into article.%I (uid, info, ts) select $1, unnest($2), clock_timestamp()', 'task_init_' || _uid)
  using _uid, _infos;
end $$;

create function article.consume(_uid int, _n int) returns setof text language plpgsql as $$
begin
  return query execute format('
    with gone as (
      delete from article.%1$I
      where ctid = any (array(select ctid from article.%1$I limit %3$s for update skip locked)) returning *),
    kept as (insert into article.%2$I select * from gone)
    select info from gone', 'task_init_' || _uid, 'task_hist_' || _uid, _n);
end $$;
