-- A task that runs in turns stands in line among the waiting tasks, by queue, tenant and partition. The leader reads
-- the lines and grants turns.

-- name: sum_turns
-- Sums up which tasks have a turn.
select tusk.sum_turns()

-- name: line
-- The first $1 tasks that wait for a turn, group by group, with their places in line. Here and below, a subquery looks
-- up the queue, because queue_of takes longer.
select (
    select l.queue from tusk.lane l
    where l.id between (w.lane >> 16) << 16 and ((w.lane >> 16) << 16) + 65535 limit 1),
  coalesce(w.tenant, ''), coalesce(w.partition, ''), w.id, w.line, w.n
from tusk.unready w where w.line is not null
order by w.lane >> 16, coalesce(w.tenant, ''), coalesce(w.partition, ''), w.lane, w.line, w.n limit $1

-- name: heads
-- The first task of each group and priority in one table. It reads the index from group to group. Each table is read
-- separately: if one has no waiting tasks, each step would read all entries of tasks that are gone.
with recursive head as (
  (select w.lane >> 16 as q, coalesce(w.tenant, '') as t, coalesce(w.partition, '') as p, w.lane, w.line, w.n
   from tusk.{line} w where w.line is not null
   order by w.lane >> 16, coalesce(w.tenant, ''), coalesce(w.partition, ''), w.lane, w.line, w.n limit 1)
  union all
  select x.*
  from head h
  cross join lateral (
    select w.lane >> 16 as q, coalesce(w.tenant, '') as t, coalesce(w.partition, '') as p, w.lane, w.line, w.n
    from tusk.{line} w
    where w.line is not null
      and (w.lane >> 16, coalesce(w.tenant, ''), coalesce(w.partition, ''), w.lane) > (h.q, h.t, h.p, h.lane)
    order by w.lane >> 16, coalesce(w.tenant, ''), coalesce(w.partition, ''), w.lane, w.line, w.n limit 1) x)
select * from head

-- name: turns
-- The $1 groups that have waited longest for a turn, with the first $2 tasks of each.
with head as (
{heads}),
first as materialized (
  select * from (select distinct on (h.q, h.t, h.p) h.q, h.t, h.p, h.line, h.n from head h
    order by h.q, h.t, h.p, h.line, h.n) f
  order by f.line, f.n limit $1),
named as materialized (
  select y.q, tusk_fn.queue_of(y.q << 16) as queue from (select distinct f.q from first f) y)
select m.queue, f.t, f.p, array(
  select w.id from tusk.unready w
  where w.line is not null and w.lane >> 16 = f.q and coalesce(w.tenant, '') = f.t
    and coalesce(w.partition, '') = f.p
  order by w.lane, w.line, w.n limit $2)
from first f join named m on m.q = f.q
order by f.line, f.n

-- name: turns_since
-- The turns that were granted and given back since snapshot $2. If the latest sum is not $1, or the snapshot comes from
-- a server that was lost in a failover, the result is the latest sum and what came after it. There is always at least
-- one row, with the sum and the snapshot of the answer.
with latest as materialized (
  select s.seq, s.xid, x.same, case when x.same then $2::text::pg_snapshot else s.seen end as seen
  from tusk.held s
  cross join lateral (
    select s.seq = $1::bigint
      and pg_snapshot_xmax($2::text::pg_snapshot) <= pg_snapshot_xmax(pg_current_snapshot())) x(same)
  where s.seen is not null order by s.seq desc limit 1)
select s.seq, s.same is not true, pg_current_snapshot()::text, case when h.seen is null then h.seq else 0 end, h.back,
  (select l.queue from tusk.lane l where l.id between g.queue << 16 and (g.queue << 16) + 65535 limit 1), g.ids,
  g.tenants, g.partitions
from latest s
left join lateral (
  select h.* from tusk.held h where h.xid = s.xid and h.seq = s.seq and s.same is not true
  union all
  select h.* from tusk.held h where h.xid >= pg_snapshot_xmax(s.seen) and h.seen is null
  union all
  select h.* from pg_snapshot_xip(s.seen) x(xid) -- a join might read all rows, including dead ones
  cross join lateral (select y.* from tusk.held y where y.xid = x.xid and y.seen is null offset 0) h) h on true
left join lateral (
  select u.queue, pg_catalog.array_agg(u.id) as ids, pg_catalog.array_agg(u.tenant) as tenants,
    pg_catalog.array_agg(u.partition) as partitions
  from unnest(h.ids, h.queues, h.tenants, h.partitions) u(id, queue, tenant, partition)
  group by u.queue) g on true
order by 4

-- name: grant
-- Grants turns, in the order given, to those of tasks $1 that wait for one, if term $2 is running, and keeps the term
-- from ending before the transaction does. Tasks are looked up by an array of ids, because a planner that expects few
-- waiting tasks would otherwise read all of them. Like an admission, a grant does not wait for the disk: one that is
-- lost in a crash is repeated, and it precedes everything on disk about the task's attempt.
with lead as materialized (
  select from tusk.leader l where l.term = $2 and l.id is not null and l.expires_at > clock_timestamp() for key share),
mine as materialized (
  select x.tableoid as line, x.ctid as place from tusk.unready x
  where exists (select from lead) and x.id = any($1::uuid[]) and x.line is not null order by x.id
  for update skip locked),
gone_0 as (
  delete from tusk.waiting w
  where w.ctid = any(array(select m.place from mine m where m.line = 'tusk.waiting'::regclass::oid)) returning w.*),
gone_1 as (
  delete from tusk.line_1 w
  where w.ctid = any(array(select m.place from mine m where m.line = 'tusk.line_1'::regclass::oid)) returning w.*),
gone_2 as (
  delete from tusk.line_2 w
  where w.ctid = any(array(select m.place from mine m where m.line = 'tusk.line_2'::regclass::oid)) returning w.*),
gone as (select * from gone_0 union all select * from gone_1 union all select * from gone_2),
granted as (
  insert into tusk.held (ids, queues, tenants, partitions)
  select pg_catalog.array_agg(g.id), pg_catalog.array_agg(g.lane >> 16), pg_catalog.array_agg(coalesce(g.tenant, '')),
    pg_catalog.array_agg(coalesce(g.partition, ''))
  from gone g having count(*) > 0),
added as (
  insert into tusk.log (lane, id, enqueued_at, attempt, crashes, kind, args, run_at, expires_at, claimed_at, tenant,
    key, tags, settings, failure, workflow, turn, partition)
  select g.lane, g.id, g.enqueued_at, g.attempt, g.crashes, g.kind, g.args, clock_timestamp(), g.expires_at,
    g.claimed_at, g.tenant, g.key, g.tags, g.settings, g.failure, g.workflow, g.turn, g.partition
  from (
    select g.* from gone g
    join (select u.id, min(u.place) as place from pg_catalog.unnest($1::uuid[]) with ordinality u(id, place)
      group by u.id) u on u.id = g.id
    order by u.place) g)
select (select count(*) from gone g)::int, array(
    select (select l.queue from tusk.lane l where l.id between u.queue << 16 and (u.queue << 16) + 65535 limit 1)
    from (select distinct g.lane >> 16 as queue from gone g) u),
  exists (select from lead), exists (select from gone_1), exists (select from gone_2)
where pg_catalog.set_config('synchronous_commit', 'off', true) is not null
