-- name: look
-- The ids among the newest rows of a table that may match, how many rows that were,
-- and the last of them.
with {few}base as materialized (
  select x.* from (
    {from}) x
  order by x.id desc
  limit {rows}),
hit as (
  select s.id from base s{rest}
  order by s.id desc
  limit {most})
select (select count(*) from base), (select s.id from base s order by s.id limit 1), array(select h.id from hit h order by h.id desc)

-- name: look_rows
-- Where an order names all columns of one index, no other can be walked for it, and
-- what is rare is not looked for from row to row.
select s.id, {state} as state, s.lane, s.kind, s.tenant, s.key, s.tags, s.failure, s.enqueued_at
from tusk.{table} s{base}
order by {order}
limit {rows}

-- name: look_kinds
select x.* from unnest({kinds}::text[]) k(kind) cross join lateral (
  {look}) x

-- name: look_lanes
select x.* from (select distinct l.id from tusk.lane l{lanes}) q(lane) cross join unnest({states}::smallint[]) t(state) cross join lateral (
  {look}) x

-- name: look_few
-- If they are few, all of them; if not, the next of the whole table.
few as materialized (select array(select tusk.few_{table}({tags}::text[], {since}::timestamptz, {until}::timestamptz, {many} + 1)) as ids),

-- name: look_few_rows
select x.* from few cross join lateral unnest(few.ids) u(id) cross join lateral (
  {one}) x
where cardinality(few.ids) <= {many}
union all
select x.* from (
  {look}) x
where (select cardinality(few.ids) from few) > {many}

-- name: look_entries
select c.newest, c.ids, c.tasks from tusk.catalogue c{place}{base}
order by {order}
limit 501

-- name: look_log
-- The same of the log: of its end, which is not in the catalogue yet, and of the
-- newest entries of the catalogue; newer than the first that was left out are all.
-- Entries that reach above the cursor are all there.
with place as materialized (
  select l.id as lane, p.done, p.win
  from (select distinct l.id from tusk.lane l{lanes}) l
  left join lateral (select q.done, q.win from tusk.lane_position q where q.lane = l.id order by q.no desc limit 1) p on true),
tail as materialized (
  select s.* from place p cross join lateral (
    select s.id, s.lane, s.xid, s.n, s.kind, s.tenant, s.tags, s.enqueued_at from tusk.task s
    where s.lane = p.lane and s.xid >= (select e.upto from tusk.catalogue_end e)
    limit {many} + 1) s
  limit {many} + 1),
entry as materialized (
  select c.newest, c.ids, sum(c.below) over w - c.below as above, row_number() over w as n
  from (
    select c.newest, c.ids, case when c.newest < {cursor} then c.tasks else 0 end as below
    from {entries}
    order by c.newest desc
    limit 501) c
  window w as (order by c.newest desc rows unbounded preceding)),
hit as (
  select s.id from tail s{tail}
  union
  (select h.id
   from (
     select u.id from entry c cross join lateral (select u.id from unnest(c.ids) u(id){before}{each}) u
     where c.above < {rows} and c.n < 501
     order by u.id desc) h{rest}
   order by h.id desc
   limit {most})
  order by id desc
  limit {most})
select (select count(*) from tail),
  (select c.newest from entry c where c.above >= {rows} or c.n = 501 order by c.newest desc limit 1),
  array(select h.id from hit h order by h.id desc)

-- name: catalogue
select tusk.catalogue_next($1, $2, $3)
