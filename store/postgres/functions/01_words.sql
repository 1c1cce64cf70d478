-- Returns the lowest id with which a pack that contains this task can begin.
create function tusk_fn.block_of(_id uuid) returns uuid language sql immutable as $$
  select (left(_id::text, 34) || '00')::uuid
$$;

-- The ids of a block are consecutive in their last byte. id_after returns the id that is _many
-- after _id, and ids_between the distance from _first to _id in the same block.
create function tusk_fn.id_after(_id uuid, _many int) returns uuid language sql immutable as $$
  select encode(set_byte(uuid_send(_id), 15, get_byte(uuid_send(_id), 15) + _many), 'hex')::uuid
$$;

create function tusk_fn.ids_between(_first uuid, _id uuid) returns int language sql immutable as $$
  select get_byte(uuid_send(_id), 15) - get_byte(uuid_send(_first), 15)
$$;

-- Shortens tags so that they fit into an index. Kinds are cut to 64 characters where they are read. Only tasks that
-- were inserted directly into the log, past all checks, have longer ones.
create function tusk_fn.short_tags(_tags text[]) returns text[] language sql immutable as $$
  select case when _tags is null or pg_column_size(_tags) < 2000 then _tags
    else array(select left(t, 64) from unnest(_tags) t where t is not null limit 16) end
$$;

-- The tasks of the log that are not in packs.
create view tusk_fn.unpacked as
select l.xid, l.lane, l.n, l.id, l.enqueued_at, l.attempt, l.crashes, left(l.kind, 64) as kind, l.args,
  l.run_at, l.expires_at, l.claimed_at, l.tenant, l.key,
  case when l.tags is not null then tusk_fn.short_tags(l.tags) end as tags, -- not inlined: few tasks have tags
  l.settings, l.failure, l.workflow, l.turn, l.partition
from tusk.log l
where l.packed is null;

-- All tasks of the log, one row each. To find one by its id, use rows_of.
create view tusk_fn.task as
select * from tusk_fn.unpacked
union all
select l.xid, l.lane, l.n + u.place, tusk_fn.id_after(l.id, u.place::int - 1), l.enqueued_at, 0, 0, l.kind, u.args,
  null, l.expires_at, null, null, null, l.tags, l.settings, null, null, null, null
from tusk.log l
cross join lateral unnest(l.packed) with ordinality u(args, place)
where l.packed is not null;

-- The rows of one task that transactions from _lo to _hi wrote. Its pack is the last one that
-- begins at or before its id in the same block. The limit tells the planner to expect only one.
create function tusk_fn.rows_of(_id uuid, _lo xid8 default '0', _hi xid8 default '18446744073709551615')
  returns setof tusk_fn.task
language sql stable rows 1 as $$
  select l.* from tusk_fn.unpacked l where l.id = _id and l.xid between _lo and _hi
  union all
  select l.xid, l.lane, l.n + l.place, _id, l.enqueued_at, 0, 0, l.kind, l.packed[l.place], null, l.expires_at, null,
    null, null, l.tags, l.settings, null, null, null, null
  from (
    select p.xid, p.lane, p.n, p.enqueued_at, p.kind, p.expires_at, p.tags, p.settings, p.packed,
      tusk_fn.ids_between(p.id, _id) + 1 as place
    from tusk.log p
    where p.packed is not null and p.id between tusk_fn.block_of(_id) and _id and p.xid between _lo and _hi
    order by p.id desc limit 1) l
  where l.place <= cardinality(l.packed)
$$;

-- Small functions that the larger ones use.
create function tusk_fn.lane_of(_queue text, _priority int) returns bigint language sql immutable as $$
  select ((('x' || encode(substr(sha256(convert_to(_queue, 'UTF8')), 1, 6),
    'hex'))::bit(48)::bigint & 140737488355327) << 16)
    + _priority + 32768
$$;

-- Not in SQL: what is not inlined is planned again in every statement, which took longer than an admission.
create function tusk_fn.queue_of(_lane bigint) returns text language plpgsql stable as $$
begin
  return (select l.queue from tusk.lane l
    where l.id between _lane & (-65536)::bigint and (_lane & (-65536)::bigint) + 65535::bigint limit 1);
end $$;

-- A lane has two locks. A claim takes only the second and holds it for milliseconds. A change
-- takes both, perhaps in a user's transaction that stays open for long. While the first is held,
-- claims do not wait for the second.
create function tusk_fn.lock_lane(_lane bigint) returns void language sql volatile as $$
  select pg_advisory_xact_lock(~(_lane # ('tusk.log'::regclass::oid::bigint << 31)));
  select pg_advisory_xact_lock(_lane # ('tusk.log'::regclass::oid::bigint << 31))
$$;

create function tusk_fn.try_lane(_lane bigint) returns boolean language sql volatile as $$
  select pg_try_advisory_xact_lock(_lane # ('tusk.log'::regclass::oid::bigint << 31))
$$;

-- Reports whether a row of a lane has not been claimed yet. To act on the
-- answer, hold the lane's lock and call this in a separate statement.
create function tusk_fn.unclaimed(_lane bigint, _xid xid8, _n bigint) returns boolean language sql stable as $$
  select coalesce((
    select not pg_visible_in_snapshot(_xid, p.done)
      and not (p.win is not null and pg_visible_in_snapshot(_xid, p.win) and (_xid, _n) <= (p.at_xid, p.at_n))
    from tusk.lane_position p
    where p.lane = _lane
    order by p.no desc
    limit 1), true)
$$;

-- The number of the last task in a row of the log.
create function tusk_fn.last_n(_n bigint, _packed bytea[]) returns bigint language sql immutable as $$
  select _n + coalesce(cardinality(_packed), 0)
$$;

-- The ids of runs, one row each. It is not an SQL function, because the planner would expect a
-- hundred times as many rows of an inlined one and compile the query.
create function tusk_fn.ids_of(_firsts uuid[], _counts int[]) returns table (id uuid, place bigint)
  language plpgsql immutable rows 100 as $$
begin
  if _counts is null then
    return query select u.id, u.place from pg_catalog.unnest(_firsts) with ordinality u(id, place);
  else
    return query
    select tusk_fn.id_after(r.first, k), row_number() over (order by r.no, k)
    from unnest(_firsts, _counts) with ordinality r(first, count, no)
    cross join generate_series(0, r.count - 1) k;
  end if;
end $$;

-- Returns the place of an id in runs, or null if it is not in them.
create function tusk_fn.place_of(_firsts uuid[], _counts int[], _id uuid) returns int language plpgsql immutable as $$
declare
  _block uuid;
begin
  if _counts is null then
    return pg_catalog.array_position(_firsts, _id);
  end if;
  _block := tusk_fn.block_of(_id);
  return (
    select r.upto - r.count + 1 + tusk_fn.ids_between(r.first, _id)
    from (
      select u.first, u.count, sum(u.count) over (order by u.no) as upto
      from unnest(_firsts, _counts) with ordinality u(first, count, no)) r
    where r.first between _block and _id and tusk_fn.ids_between(r.first, _id) < r.count);
end $$;

-- The tasks in a row of the log, with their places in the lane.
create function tusk_fn.places_of(_id uuid, _n bigint, _packed bytea[]) returns table (id uuid, n bigint)
  language sql immutable as $$
  select _id, _n where _packed is null
  union all
  select tusk_fn.id_after(_id, u.place::int - 1), _n + u.place from unnest(_packed) with ordinality u(args, place)
$$;

-- Returns the number of the narrowest dyadic interval that contains two xids. It is not an SQL
-- function, because one that cannot be inlined is planned again in every statement.
create function tusk_fn.node_of(_lo xid8, _hi xid8) returns bigint language plpgsql immutable as $$
declare
  l bigint := _lo::text::bigint;
  s int := case when _lo = _hi then 0 else length(ltrim((l # _hi::text::bigint)::bit(64)::text, '0')) end;
begin
  return ((l >> s) * 2 + 1) << s;
end $$;

-- The flushes that completed tasks of an xid, and others. It searches the dyadic intervals that contain the xid one
-- after the other, the narrowest first. For a search of all of them at once, the planner would read all flushes of the
-- lane.
create function tusk_fn.flushes_of(_lane bigint, _xid xid8)
returns table (at tid, worker uuid, claimed_at timestamptz, finished_at timestamptz, firsts uuid[], counts int[],
  ago int[])
language sql stable rows 50 as $$
  select o.*
  from (select _xid::text::bigint as xid offset 0) b
  cross join generate_series(0, 48) s
  cross join lateral (
    select y.ctid, y.worker, y.claimed_at, y.finished_at, y.firsts, y.counts, y.ago
    from tusk.outcome y
    where y.lane = _lane and y.node = ((b.xid >> s) * 2 + 1) << s
    offset 0) o
$$;

-- Returns when a task ended that did so _ago milliseconds before its flush.
create function tusk_fn.end_of(_claimed_at timestamptz, _finished_at timestamptz, _ago int) returns timestamptz
  language sql stable as $$
  select case when _ago is null then _finished_at
    else greatest(_finished_at - _ago * interval '1 ms', _claimed_at) end
$$;

-- The flush that completed a task of an xid, and when the task ended.
create function tusk_fn.flush_of(_lane bigint, _xid xid8, _id uuid)
returns table (at tid, worker uuid, claimed_at timestamptz, ended_at timestamptz)
language sql stable rows 1 as $$
  select o.at, o.worker, o.claimed_at,
    tusk_fn.end_of(o.claimed_at, o.finished_at, o.ago[tusk_fn.place_of(o.firsts, o.counts, _id)])
  from (select tusk_fn.block_of(_id) as block offset 0) b
  cross join lateral (select x.* from tusk_fn.flushes_of(_lane, _xid) x offset 0) o
  where _id = any(o.firsts) or exists (
    select from unnest(o.firsts, o.counts) r(first, count)
    where o.counts is not null and r.first between b.block and _id and tusk_fn.ids_between(r.first, _id) < r.count)
$$;

-- Fails unless the term is still running.
create function tusk_fn.lead(_term bigint) returns void language plpgsql set jit = off as $$
begin
  if not exists (select from tusk.leader where term = _term and id is not null and expires_at > clock_timestamp()) then
    raise exception 'not the leader' using errcode = 'TK002';
  end if;
end $$;

-- Like lead, but also keeps the term from ending before the transaction does.
create function tusk_fn.hold_lead(_term bigint) returns void language plpgsql set jit = off as $$
begin
  perform 1 from tusk.leader where term = _term and id is not null and expires_at > clock_timestamp() for key share;
  if not found then
    raise exception 'not the leader' using errcode = 'TK002';
  end if;
end $$;

create function tusk_fn.need_read_committed() returns void language plpgsql as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'Tusk needs the isolation level read committed, not %', current_setting('transaction_isolation')
      using errcode = 'TK003';
  end if;
end $$;

-- Stores the queue names of lanes that have none yet.
create function tusk_fn.name_lanes(_lanes bigint[], _queues text[]) returns void language plpgsql set jit = off as $$
declare
  clash text;
begin
  insert into tusk.lane (id, queue)
  select x.id, x.queue
  from unnest(_lanes, _queues) x(id, queue)
  where not exists (select from tusk.lane l where l.id = x.id and l.idle_at is null);
  select l.queue into clash
  from unnest(_lanes, _queues) x(id, queue)
  join tusk.lane l on l.id = x.id and l.queue <> x.queue
  limit 1;
  if found then
    raise exception 'the name of this queue has the hash of queue "%": choose another', clash using errcode = 'TK007';
  end if;
end $$;
