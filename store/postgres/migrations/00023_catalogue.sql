-- up
set local lock_timeout = '5s';

-- What stands in a stretch of the log, those with xids from lo on and below hi: the
-- tasks of a lane by kind, and again by each of their tags, newest first. The leader
-- writes it after the fact, so that no enqueue pays for an index. It may name tasks
-- that have changed or gone since; it never leaves one out. Of packs it has their places
-- in the lane and no ids.
create table tusk.catalogue (
  lane     bigint      not null,
  kind     text collate "C", -- null: by tag
  tag      text collate "C", -- null: by kind
  lo       xid8        not null,
  hi       xid8        not null,
  newest   uuid        not null,
  oldest   uuid        not null,
  from_at  timestamptz not null, -- when they were enqueued
  until_at timestamptz not null,
  tasks    int         not null,
  ids      uuid[],     -- null: of packs
  xids     xid8[],
  ns       bigint[]    -- up to 255 more are those of tasks that were in the pack
);
alter table tusk.catalogue alter ids set storage external;
create index catalogue_newest on tusk.catalogue (newest) where tag is null;
create index catalogue_kind on tusk.catalogue (kind, newest) where tag is null;
create index catalogue_queue on tusk.catalogue ((lane >> 16), newest) where tag is null;
create index catalogue_tag on tusk.catalogue (tag, newest) where tag is not null;

-- The log's xids below upto are in the catalogue; added is how many rows the lanes
-- had got by then, about.
create table tusk.catalogue_end (
  one   boolean not null primary key default true check (one),
  upto  xid8    not null,
  added bigint  not null
);
insert into tusk.catalogue_end (upto, added) select coalesce(min(t.xid::text::bigint)::text::xid8, pg_current_xact_id()), 0 from tusk.log t;

-- Writes down the next stretch of the log, of _aim rows or so, once there are _least
-- rows behind which nobody writes any more. Says whether there is more to do.
create function tusk.catalogue_next(_term bigint, _least int, _aim int) returns boolean language plpgsql
set enable_seqscan = off set enable_sort = off set jit = off as $$
#variable_conflict use_column
declare
  _end   bigint := pg_snapshot_xmin(pg_current_snapshot())::text::bigint;
  _top   bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
  _added bigint;
  _left  numeric; -- rows from _lo to _top
  _lo    bigint;
  _hi    bigint;
  _rows  bigint;
  m      tusk.catalogue_end;
begin
  perform tusk.hold_lead(_term);
  select * into m from tusk.catalogue_end;
  select coalesce(sum(a.added), 0)::bigint into _added from tusk.lane_tally a;
  _lo := m.upto::text::bigint;
  _left := _added - m.added;
  if _left < _least or _lo >= _end then
    return false;
  end if;
  _hi := least(_end, _lo + ceil((_top - _lo) * _aim / _left));
  with log as materialized (
    select t.lane, tusk.short_kind(t.kind) as kind, tusk.short_tags(t.tags) as tags, t.id, t.enqueued_at, cardinality(t.packed) as tasks,
      tusk.id_after(t.id, cardinality(t.packed) - 1) as newest, t.xid, t.n
    from (select distinct l.id from tusk.lane l) l
    cross join lateral (
      select t.* from tusk.log t
      where t.lane = l.id and t.xid >= _lo::text::xid8 and t.xid < _hi::text::xid8) t),
  word as (
    select g.lane, g.kind, null as tag, array_agg(g.id) as ids, count(*)::int as tasks, min(g.enqueued_at) as from_at, max(g.enqueued_at) as until_at
    from log g where g.tasks is null group by g.lane, g.kind
    union all
    select g.lane, null, u.tag, array_agg(g.id), count(*)::int, min(g.enqueued_at), max(g.enqueued_at)
    from log g cross join lateral unnest(g.tags) u(tag) where g.tasks is null and u.tag is not null group by g.lane, u.tag),
  packed as (
    select p.lane, p.kind, p.tag, p.newest[1] as newest, p.oldest[1] as oldest, p.from_at, p.until_at, p.tasks, p.xids, p.ns
    from (
      select g.lane, g.kind, null as tag, array_agg(g.newest order by g.newest desc) as newest, array_agg(g.id order by g.id) as oldest,
        min(g.enqueued_at) as from_at, max(g.enqueued_at) as until_at, sum(g.tasks)::int as tasks, array_agg(g.xid order by g.id) as xids, array_agg(g.n order by g.id) as ns
      from log g where g.tasks > 0 group by g.lane, g.kind
      union all
      select g.lane, null, u.tag, array_agg(g.newest order by g.newest desc), array_agg(g.id order by g.id),
        min(g.enqueued_at), max(g.enqueued_at), sum(g.tasks)::int, array_agg(g.xid order by g.id), array_agg(g.n order by g.id)
      from log g cross join lateral unnest(g.tags) u(tag) where g.tasks > 0 and u.tag is not null group by g.lane, u.tag) p),
  sorted as materialized (
    select w.lane, w.kind, w.tag, w.tasks, w.from_at, w.until_at, array(select x.id from unnest(w.ids) x(id) order by x.id desc) as newest_first from word w),
  stored as (
    insert into tusk.catalogue (lane, kind, tag, lo, hi, newest, oldest, from_at, until_at, tasks, ids, xids, ns)
    select w.lane, w.kind, w.tag, _lo::text::xid8, _hi::text::xid8, w.newest_first[i], w.newest_first[least(i + 4999, w.tasks)], w.from_at, w.until_at,
      least(5000, w.tasks - i + 1), case when w.tasks <= 5000 then w.newest_first else w.newest_first[i : i + 4999] end, null, null
    from sorted w
    cross join generate_series(1, w.tasks, 5000) i
    union all
    select p.lane, p.kind, p.tag, _lo::text::xid8, _hi::text::xid8, p.newest, p.oldest, p.from_at, p.until_at, p.tasks, null, p.xids, p.ns from packed p)
  select coalesce(sum(coalesce(g.tasks, 1)), 0) into _rows from log g;
  update tusk.catalogue_end e set upto = _hi::text::xid8, added = case when _hi = _end then _added - _left * (_top - _hi) / (_top - _lo) else least(m.added + _rows, _added - 1) end;
  return _hi < _end;
end $$;

-- A task that is replaced before it has started keeps its row.
create function tusk.catalogue_anew() returns trigger language plpgsql as $$
begin
  insert into tusk.catalogue (lane, kind, tag, lo, hi, newest, oldest, from_at, until_at, tasks, ids)
  select new.lane, w.kind, w.tag, new.xid, (new.xid::text::bigint + 1)::text::xid8, new.id, new.id, new.enqueued_at, new.enqueued_at, 1, array[new.id]
  from (
    select tusk.short_kind(new.kind) as kind, null as tag where new.kind <> old.kind
    union all
    select null, u.tag from unnest(tusk.short_tags(new.tags)) u(tag) where u.tag is not null and (old.tags is null or u.tag <> all(old.tags))) w;
  return null;
end $$;
create trigger catalogue_anew after update of kind, tags on tusk.log for each row
when (old.kind <> new.kind or old.tags is distinct from new.tags) execute function tusk.catalogue_anew();

-- Where rows come and go one by one, indexes.
create index waiting_kind on tusk.waiting (kind, id);
drop index tusk.waiting_lane;
create index waiting_lane on tusk.waiting (lane, state, id);
alter function tusk.counts() set enable_seqscan = off; -- which counts in it
create index waiting_tags on tusk.waiting using gin (tags) with (gin_pending_list_limit = 256) where tags is not null;
create index dead_kind on tusk.dead (kind, id);
create index dead_lane on tusk.dead (lane, state, id);
create index dead_tags on tusk.dead using gin (tags) with (gin_pending_list_limit = 256) where tags is not null;
create index waiting_enqueued on tusk.waiting (enqueued_at);
create index dead_enqueued on tusk.dead (enqueued_at);

-- How many of an error there are is counted in the index alone.
create index waiting_error on tusk.waiting (failure, kind, lane) where state = 5;
create index dead_error on tusk.dead (failure, kind, lane) where state = 8;

-- Tasks that have all tags, or were enqueued in a span of time, _limit of them at
-- most, in no order.
create function tusk.few_waiting(_tags text[], _since timestamptz, _until timestamptz, _limit int) returns setof uuid language plpgsql stable
set enable_seqscan = off set jit = off as $$
begin
  if _tags is not null then
    return query select s.id from tusk.waiting s where s.tags @> _tags limit _limit;
  else
    return query select s.id from tusk.waiting s where s.enqueued_at >= _since and s.enqueued_at < _until limit _limit;
  end if;
end $$;

create function tusk.few_dead(_tags text[], _since timestamptz, _until timestamptz, _limit int) returns setof uuid language plpgsql stable
set enable_seqscan = off set jit = off as $$
begin
  if _tags is not null then
    return query select s.id from tusk.dead s where s.tags @> _tags limit _limit;
  else
    return query select s.id from tusk.dead s where s.enqueued_at >= _since and s.enqueued_at < _until limit _limit;
  end if;
end $$;

-- down
set local lock_timeout = '5s';
drop function tusk.few_dead, tusk.few_waiting;
drop index tusk.dead_error, tusk.waiting_error, tusk.dead_enqueued, tusk.waiting_enqueued, tusk.dead_tags, tusk.dead_lane, tusk.dead_kind, tusk.waiting_tags, tusk.waiting_lane, tusk.waiting_kind;
create index waiting_lane on tusk.waiting (lane, state);
alter function tusk.counts() reset enable_seqscan;
drop trigger catalogue_anew on tusk.log;
drop function tusk.catalogue_anew, tusk.catalogue_next;
drop table tusk.catalogue_end, tusk.catalogue;
