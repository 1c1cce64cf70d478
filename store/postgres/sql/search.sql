-- name: look
-- The number of rows of a table that were read, the last of them, and the ids of those that match. The rows are the
-- newest that may match.
with {few}base as materialized (
  select x.* from (
    {from}) x
  order by x.id desc
  limit {rows}),
hit as (
  select s.id from base s{rest}
  order by s.id desc
  limit {most})
select (select count(*) from base), (select s.id from base s order by s.id limit 1),
  array(select h.id from hit h order by h.id desc)

-- name: look_rows
-- The order names all columns of one index. Only that index can provide it, so the planner does not read a whole table
-- in search of rare rows.
select s.id, {state}, s.lane, s.kind, s.tenant, s.key, s.tags, s.failure, s.enqueued_at
from tusk.{table} s{base}
order by {order}
limit {rows}

-- name: look_rows_of_log
-- The newest tasks of the log, single ones and those in packs. Enough packs are read to fill the limit.
select * from (
  (select s.id, {state}, s.lane, s.kind, s.tenant, s.key, s.tags, s.failure, s.enqueued_at
   from tusk.log s
   where s.packed is null and s.id < {cursor}
   order by s.id desc
   limit {rows})
  union all
  (select u.id, null, null, l.lane, l.kind, null, null, l.tags, null, l.enqueued_at
   from (
     select l.id, l.packed, l.lane, l.kind, l.tags, l.enqueued_at from tusk.log l
     where l.packed is not null and l.id < {cursor}
     order by l.id desc
     limit {packs}) l
   cross join lateral tusk_fn.places_of(l.id, 0, l.packed) u
   where u.id < {cursor})) s

-- name: look_kinds
select x.* from pg_catalog.unnest({kinds}::text[]) k(kind) cross join lateral (
  {look}) x

-- name: look_lanes
select x.* from (select distinct l.id from tusk.lane l{lanes}) q(lane) cross
  join pg_catalog.unnest({states}::smallint[]) t(state) cross join lateral (
  {look}) x

-- name: look_few
-- If there are few matching tasks, all of them are read; otherwise the next rows of the whole table.
few as materialized (select array(select tusk_fn.few('{table}' = 'dead', {tags}::text[], {since}::timestamptz,
  {until}::timestamptz, {many} + 1)) as ids),

-- name: look_few_line
-- Like look_few, for tasks that stand in the lines of some queues or, if {queues} is null, of all. If {tenant} is not
-- null, only its tasks.
few as materialized (select array(
  select s.id
  from (select distinct u.queue from pg_catalog.unnest(coalesce({queues}::bigint[], array(
    select l.id >> 16 from tusk.lane l))) u(queue)) q
  cross join lateral (
    (select w.id from tusk.unready w
     where {tenant}::text is null and w.line is not null and w.lane >> 16 = q.queue
     order by w.lane >> 16, coalesce(w.tenant, ''), coalesce(w.partition, ''), w.lane, w.line, w.n limit {many} + 1)
    union all
    (select w.id from tusk.unready w
     where w.line is not null and w.lane >> 16 = q.queue and coalesce(w.tenant, '') = {tenant}::text
     order by w.lane >> 16, coalesce(w.tenant, ''), coalesce(w.partition, ''), w.lane, w.line, w.n limit {many} + 1)) s
  limit {many} + 1) as ids),

-- name: look_few_rows
select x.* from few cross join lateral pg_catalog.unnest(few.ids) u(id) cross join lateral (
  {one}) x
where pg_catalog.cardinality(few.ids) <= {many}
union all
select x.* from (
  {look}) x
where (select pg_catalog.cardinality(few.ids) from few) > {many}

-- name: look_entries
-- The next entries of the catalogue that an index finds. Only those that may contain matching tasks are returned, and
-- the last one that was read: what is below it has not been looked at.
select c.*, p.*
from (
  select c.*, row_number() over () = {many} as last from (
    select c.lane, c.newest, c.ids, c.xids, c.ns, c.tasks, c.lo, c.hi from tusk.catalogue c{base}
    order by {order}
    limit {many}) c) c
left join lateral (
  select q.done, q.win, q.at_xid, q.at_n from tusk.lane_position q where {place}q.lane = c.lane order by q.no desc
    limit 1) p on true
where c.last or {fit}

-- name: look_claimed
-- Whether a task of the log was claimed, given the position of its lane. It is the opposite of tusk_fn.unclaimed(),
-- without reading the position again for each task.
coalesce(pg_visible_in_snapshot(s.xid, {of}.done) or pg_visible_in_snapshot(s.xid, {of}.win)
  and (s.xid, s.n) <= ({of}.at_xid, {of}.at_n), false)

-- name: look_entry
-- The values of a task of an entry. They are known for tasks in packs, and looked up for others.
cross join lateral (
     select from (
       select h.xid, h.n, h.lane, h.kind, h.tenant, h.tags, h.enqueued_at where h.xid is not null
       union all
       select t.xid, t.n, t.lane, t.kind, t.tenant, t.tags, t.enqueued_at
       from tusk_fn.rows_of(h.id, h.lo, h.hi) t where h.xid is null and t.xid < h.hi) s{where}
     limit 1) s

-- name: look_log
-- Like look, for the log: its end, which is not in the catalogue yet, and the newest entries of the catalogue. It finds
-- all tasks that are newer than the first entry that was left out, and includes all entries that reach above the
-- cursor. A task may come twice: duplicates are kept, so that a list that was cut off is as long as its limit.
with place as materialized (
  select l.id as lane, p.*
  from (select distinct l.id from tusk.lane l{lanes}) l
  left join lateral (select q.done, q.win, q.at_xid, q.at_n from tusk.lane_position q where q.lane = l.id
    order by q.no desc limit 1) p on true),
tail as materialized (
  select s.*, p.done, p.win, p.at_xid, p.at_n from place p cross join lateral (
    select u.id, l.lane, l.xid, u.n, l.kind, l.tenant, l.tags, l.enqueued_at
    from tusk.log l cross join lateral tusk_fn.places_of(l.id, l.n, l.packed) u
    where l.lane = p.lane and l.xid >= (select e.upto from tusk.catalogue_end e)
    limit {tail} + 1) s
  limit {tail} + 1),
entry as materialized (
  select c.*, c.last or row_number() over w = {many} as left_out, sum(c.below) over w - c.below as above
  from (
    select c.lane, c.newest, c.ids, c.xids, c.ns, c.lo, c.hi, c.done, c.win, c.at_xid, c.at_n, c.last, case
      when c.newest < {cursor} then c.tasks else 0 end as below
    from {entries}
    order by c.newest desc
    limit {many}) c
  window w as (order by c.newest desc rows unbounded preceding)),
hit as (
  select s.id from tail s{in_tail}
  union all
  (select h.id
   from (
     select u.*, c.lo, c.hi, c.done, c.win, c.at_xid, c.at_n
     from entry c cross join lateral (
       select u.*
       from (
         select pg_catalog.unnest(c.ids) as id, null::xid8 as xid, null::bigint as n, null::bigint as lane,
           null::text as kind, null::text as tenant, null::text[] as tags, null::timestamptz as enqueued_at
         union all
         select t.id, l.xid, t.n, l.lane, l.kind, l.tenant, l.tags, l.enqueued_at
         from unnest(c.xids, c.ns) p(xid, n)
         cross join lateral (
           select l.* from tusk.log l where l.lane = c.lane and l.xid = p.xid and l.n between p.n
             and p.n + 255 offset 0) l
         cross join lateral tusk_fn.places_of(l.id, l.n, l.packed) t) u{before}{each}) u
     where c.above < {rows} and not c.left_out
     order by u.id desc) h{in_entry}
   order by h.id desc
   limit {most})
  order by id desc
  limit {most})
select (select count(*) from tail),
  (select c.newest from entry c where c.above >= {rows} or c.left_out order by c.newest desc limit 1),
  array(select h.id from hit h order by h.id desc)
