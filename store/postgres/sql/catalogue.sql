-- name: catalogue
-- Adds the next part of the log, about $2 rows, to the catalogue once the log has about $1 new rows. The part ends
-- before the oldest transaction that is still open. Returns whether there is more to do.
with here as materialized (
  select m.upto::text::numeric as lo, pg_snapshot_xmin(s)::text::numeric as ending,
    pg_snapshot_xmax(s)::text::numeric as top, m.added::numeric as known, a.added,
    a.added - m.added::numeric as rest -- rows from lo to top
  from tusk.catalogue_end m
  cross join pg_current_snapshot() s
  cross join (select coalesce(sum(t.added), 0) as added from tusk.lane_tally t) a),
span as materialized (
  select h.lo::text::xid8 as lo, least(h.ending, h.lo + ceil((h.top - h.lo) * $2::numeric / h.rest))::text::xid8 as hi
  from here h
  where h.rest >= $1::numeric and h.rest > 0::numeric and h.lo < h.ending),
log as materialized (
  select t.lane, pg_catalog.left(t.kind, 64) as kind, tusk_fn.short_tags(t.tags) as tags, t.id, t.enqueued_at,
    pg_catalog.cardinality(t.packed) as tasks, tusk_fn.id_after(t.id, pg_catalog.cardinality(t.packed) - 1) as newest,
    t.xid, t.n
  from (select distinct l.id from tusk.lane l where exists (select from span)) l
  cross join lateral (
    select t.* from tusk.log t
    where t.lane = l.id and t.xid >= (select s.lo from span s)
      and t.xid < (select s.hi from span s)) t),
word as (
  select g.lane, g.kind, null as tag, pg_catalog.array_agg(g.id) as ids, count(*)::int as tasks,
    min(g.enqueued_at) as from_at, max(g.enqueued_at) as until_at
  from log g where g.tasks is null group by g.lane, g.kind
  union all
  select g.lane, null, u.tag, pg_catalog.array_agg(g.id), count(*)::int, min(g.enqueued_at), max(g.enqueued_at)
  from log g cross join lateral pg_catalog.unnest(g.tags) u(tag) where g.tasks is null and u.tag is not null
    group by g.lane, u.tag),
packed as (
  select p.lane, p.kind, p.tag, p.newest[1] as newest, p.oldest[1] as oldest, p.from_at, p.until_at, p.tasks,
    p.xids, p.ns
  from (
    select g.lane, g.kind, null as tag, pg_catalog.array_agg(g.newest order by g.newest desc) as newest,
      pg_catalog.array_agg(g.id order by g.id) as oldest, min(g.enqueued_at) as from_at, max(g.enqueued_at) as until_at,
      sum(g.tasks)::int as tasks, pg_catalog.array_agg(g.xid order by g.id) as xids,
      pg_catalog.array_agg(g.n order by g.id) as ns
    from log g where g.tasks > 0 group by g.lane, g.kind
    union all
    select g.lane, null, u.tag, pg_catalog.array_agg(g.newest order by g.newest desc),
      pg_catalog.array_agg(g.id order by g.id), min(g.enqueued_at), max(g.enqueued_at), sum(g.tasks)::int,
      pg_catalog.array_agg(g.xid order by g.id), pg_catalog.array_agg(g.n order by g.id)
    from log g cross join lateral pg_catalog.unnest(g.tags) u(tag) where g.tasks > 0 and u.tag is not null
      group by g.lane, u.tag) p),
sorted as materialized (
  select w.lane, w.kind, w.tag, w.tasks, w.from_at, w.until_at,
    array(select x.id from pg_catalog.unnest(w.ids) x(id) order by x.id desc) as newest_first from word w),
stored as (
  insert into tusk.catalogue (lane, kind, tag, lo, hi, newest, oldest, from_at, until_at, tasks, ids, xids, ns)
  select w.lane, w.kind, w.tag, s.lo, s.hi, w.newest_first[i],
    w.newest_first[least(i + 4999, w.tasks)], w.from_at, w.until_at, least(5000, w.tasks - i + 1),
    case when w.tasks <= 5000 then w.newest_first else w.newest_first[i : i + 4999] end, null, null
  from span s cross join sorted w
  cross join generate_series(1, w.tasks, 5000) i
  union all
  select p.lane, p.kind, p.tag, s.lo, s.hi, p.newest, p.oldest, p.from_at, p.until_at,
    p.tasks, null, p.xids, p.ns from span s cross join packed p)
update tusk.catalogue_end e
set upto = s.hi, added = case when s.hi = h.ending::text::xid8
  then h.added - h.rest * (h.top - h.ending) / (h.top - h.lo)
  else least(h.known + (select coalesce(sum(coalesce(g.tasks, 1)), 0)::numeric from log g), h.added - 1::numeric) end
from here h cross join span s
returning s.hi < h.ending::text::xid8
