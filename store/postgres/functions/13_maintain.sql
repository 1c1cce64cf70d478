-- Housekeeping of lanes and leases, in a short transaction for each: it adds new rows to the lane's tally, trims its
-- old positions, moves an idle lane on so that old segments are behind it, and closes tasks that users' transactions
-- have finished. Most lanes need nothing, and one statement sorts them out.
create procedure tusk_fn.tidy(_term bigint, _keep_positions int, _idle_xids bigint) language plpgsql as $$
#variable_conflict use_column
declare
  _lane bigint;
  _held tid[];
  x     record;
begin
  -- A procedure that commits cannot have settings of its own, and loses them with each commit.
  perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
    pg_catalog.set_config('jit', 'off', true), tusk_fn.lead(_term);
  foreach _lane in array tusk_fn.untidy_lanes(_keep_positions, _idle_xids) loop
    if tusk_fn.try_lane(_lane) then
      perform tusk_fn.tidy_lane(_lane, _keep_positions, _idle_xids);
    end if;
    commit;
    perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
      pg_catalog.set_config('jit', 'off', true), tusk_fn.lead(_term);
  end loop;
  for x in
    select l.token, l.lane from tusk.lease l
    where bit_count(l.open) = 0 or exists (select from tusk.finished f where f.token = l.token)
  loop
    -- A flush that holds the lease closes it as well. Judged without the lock, tasks that it has just closed would be
    -- open again.
    _held := array(select l.ctid from tusk.lease l where l.token = x.token and l.lane = x.lane for update skip locked);
    if cardinality(_held) > 0 then
      perform tusk_fn.close(x.token, x.lane, '{}', _held);
    end if;
    commit;
    perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
      pg_catalog.set_config('jit', 'off', true);
  end loop;
  delete from tusk.finished f where not exists (select from tusk.lease l where l.token = f.token);
  delete from tusk.stop s where not exists (select from tusk_fn.running r where r.token = s.token and r.id = s.id);
end $$;

-- Gives lanes that hold tasks but have no name the name of a queue that is mentioned anywhere, and returns the lanes
-- whose name is lost. The indexes are read from lane to lane.
create function tusk_fn.name_lost_lanes(_term bigint) returns bigint[] language plpgsql
set enable_seqscan = off set enable_bitmapscan = off
  set jit = off as $$
declare
  _lost bigint[];
begin
  perform tusk_fn.lead(_term);
  _lost := array(
    with recursive held as (
      (select t.lane from tusk.log t order by t.lane limit 1)
      union all
      select (select t.lane from tusk.log t where t.lane > h.lane order by t.lane limit 1) from held h
        where h.lane is not null),
    waits as (
      (select w.lane from tusk.waiting w where w.line is null and w.lane >= (-1::bigint << 63) order by w.lane limit 1)
      union all
      select (select w.lane from tusk.waiting w where w.line is null and w.lane > h.lane order by w.lane limit 1)
      from waits h where h.lane is not null),
    lines as ( -- a lane of each queue: of the others the log tells when their tasks are granted
      (select w.lane from tusk.waiting w where w.line is not null
       order by w.lane >> 16, coalesce(w.tenant, ''), coalesce(w.partition, ''), w.lane, w.line, w.n limit 1)
      union all
      select (
        select w.lane from tusk.waiting w where w.line is not null and w.lane >> 16 > h.lane >> 16
        order by w.lane >> 16, coalesce(w.tenant, ''), coalesce(w.partition, ''), w.lane, w.line, w.n limit 1)
      from lines h where h.lane is not null)
    select x.lane from (select h.lane from held h union select h.lane from waits h union select h.lane from lines h) x
    where x.lane is not null and not exists (select from tusk.lane l where l.id = x.lane));
  if cardinality(_lost) = 0 then
    return _lost;
  end if;
  perform tusk_fn.hold_lead(_term);
  insert into tusk.lane (id, queue)
  select x.lane, n.queue
  from (
    select l.queue from tusk.lane l
    union
    select q.name from tusk.worker w
    cross join lateral jsonb_array_elements_text(case jsonb_typeof(w.about -> 'queues') when 'array'
      then w.about -> 'queues' else '[]' end) q(name)
    union
    select r.name from tusk.record r where r.kind in ('queue', 'limits')) n
  join unnest(_lost) x(lane) on x.lane >> 16 = tusk_fn.lane_of(n.queue, 0) >> 16;
  return array(select x.lane from unnest(_lost) x(lane) where not exists (select from tusk.lane l where l.id = x.lane));
end $$;

-- The lanes that have something to tidy.
create function tusk_fn.untidy_lanes(_keep_positions int, _idle_xids bigint) returns bigint[] language plpgsql
set enable_memoize = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
  _here pg_snapshot := pg_current_snapshot();
  _end  xid8 := pg_snapshot_xmax(_here);
begin
  return array(
    select l.id
    from (select distinct l.id from tusk.lane l) l
    left join tusk.lane_tally a on a.lane = l.id
    left join lateral (select q.no, q.done, q.win from tusk.lane_position q where q.lane = l.id order by q.no desc
      limit 1) p on true
    where a.lane is null
      or _end::text::bigint - pg_snapshot_xmax(a.seen)::text::bigint > _idle_xids
      or exists (select from tusk.log t where t.lane = l.id and t.xid >= pg_snapshot_xmax(a.seen) and t.xid < _end)
      or exists (
        select from pg_snapshot_xip(a.seen) x
        cross join lateral (select from tusk.log t where t.lane = l.id and t.xid = x limit 1) late
        where pg_visible_in_snapshot(x, _here))
      or p.win is null and (
        _end::text::bigint - pg_snapshot_xmin(p.done)::text::bigint > _idle_xids
        or pg_snapshot_xmin(p.done) < pg_snapshot_xmax(p.done) and pg_snapshot_xmin(_here) >= pg_snapshot_xmax(p.done))
      or exists (select from tusk.lane_position q where q.lane = l.id and q.no < p.no - 2 * _keep_positions));
end $$;

-- Tidies a lane whose lock the caller holds.
create function tusk_fn.tidy_lane(_lane bigint, _keep_positions int, _idle_xids bigint) returns void
  language plpgsql as $$
#variable_conflict use_column
declare
  _here pg_snapshot := pg_current_snapshot();
  _seen pg_snapshot;
  _rows bigint;
  p     tusk.lane_position;
begin
  select coalesce(max(a.seen::text), '1:1:')::pg_snapshot into _seen from tusk.lane_tally a where a.lane = _lane;
  select (
    select coalesce(sum(late.rows), 0)::bigint from pg_snapshot_xip(_seen) x
    cross join lateral (select sum(coalesce(cardinality(t.packed), 1)) as rows from tusk.log t where t.lane = _lane
      and t.xid = x) late
    where pg_visible_in_snapshot(x, _here)) + (
    select coalesce(sum(coalesce(cardinality(t.packed), 1)), 0)::bigint from tusk.log t
    where t.lane = _lane and t.xid >= pg_snapshot_xmax(_seen) and t.xid < pg_snapshot_xmax(_here)
      and pg_visible_in_snapshot(t.xid, _here))
  into _rows;
  if _rows > 0 or pg_snapshot_xmax(_here)::text::bigint - pg_snapshot_xmax(_seen)::text::bigint > _idle_xids then
    insert into tusk.lane_tally as a (lane, seen, added) values (_lane, _here, _rows)
    on conflict (lane) do update set seen = excluded.seen, added = a.added + excluded.added;
  end if;
  select * into p from tusk.lane_position q where q.lane = _lane order by q.no desc limit 1;
  if not found then
    return;
  end if;
  if exists (select from tusk.lane_position q where q.lane = _lane and q.no < p.no - 2 * _keep_positions) then
    delete from tusk.lane_position q where q.lane = _lane and q.no < p.no - _keep_positions;
  end if;
  -- Until the lane is moved on, every claim looks for the rows of transactions that an earlier claim saw in flight.
  if p.win is null and (
      pg_snapshot_xmax(_here)::text::bigint - pg_snapshot_xmin(p.done)::text::bigint > _idle_xids
      or pg_snapshot_xmin(p.done) < pg_snapshot_xmax(p.done) and pg_snapshot_xmin(_here) >= pg_snapshot_xmax(p.done))
    and not exists (
      select from pg_snapshot_xip(p.done) x
      cross join lateral (select from tusk.log t where t.lane = _lane and t.xid = x limit 1) late)
    and not exists (select from tusk.log t where t.lane = _lane and t.xid >= pg_snapshot_xmax(p.done)) then
    insert into tusk.lane_position (lane, no, done, win, at_xid, at_n, claimed)
    values (_lane, p.no + 1, _here, null, '0', 0, p.claimed);
  end if;
end $$;

-- Whether nothing in the database belongs to a lane.
create function tusk_fn.is_idle(_lane bigint) returns boolean language sql stable as $$
  select not exists (select from tusk.log t where t.lane = _lane)
    and not exists (select from tusk.waiting w where w.lane = _lane and w.line is null)
    and not exists (select from tusk.waiting w where w.lane >> 16 = _lane >> 16 and w.line is not null)
    and not exists (select from tusk.dead d where d.lane = _lane)
    and not exists (select from tusk.lease l where l.lane = _lane)
    and not exists (select from tusk.outcome o where o.lane = _lane)
    and not exists (select from tusk.failure f where f.queue = _lane >> 16)
$$;

-- Looks at up to _limit lanes after _from and forgets those that have had no task for long. Returns the last lane that
-- it looked at, or null at the end. Processes remember for a while that a lane has a name; _after (microseconds) must
-- be well above that. So a lane is marked first. It is deleted once it has been idle for _after, and every transaction
-- has ended that may have relied on its row.
create function tusk_fn.forget_lanes(_term bigint, _from bigint, _limit int, _after bigint) returns bigint
  language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  _now  timestamptz := clock_timestamp();
  _all  bigint[] := array(select distinct l.id from tusk.lane l where l.id > _from order by l.id limit _limit);
  _idle bigint[];
  _lane bigint;
begin
  perform tusk_fn.lead(_term);
  _idle := array(select u.id from unnest(_all) u(id) where tusk_fn.is_idle(u.id));
  update tusk.lane l set idle_at = null, idle_xid = null where l.id = any(_all) and l.id <> all(_idle)
    and l.idle_at is not null;
  update tusk.lane l set idle_xid = pg_current_xact_id()
  where l.id = any(_idle) and l.idle_xid is null and l.idle_at <= _now - _after * interval '1 us';
  update tusk.lane l set idle_at = _now where l.id = any(_idle) and l.idle_at is null;
  for _lane in
    select l.id from tusk.lane l where l.id = any(_idle)
    group by l.id having bool_and(coalesce(l.idle_xid < pg_snapshot_xmin(pg_current_snapshot()), false))
  loop
    continue when not tusk_fn.try_lane(_lane);
    continue when not tusk_fn.is_idle(_lane); -- under the lane's lock nobody claims from it
    delete from tusk.lane l where l.id = _lane and l.idle_xid is not null;
    delete from tusk.lane_position p where p.lane = _lane;
    with gone as (delete from tusk.lane_tally a where a.lane = _lane returning a.added)
    update tusk.catalogue_end e set added = e.added - g.added from gone g;
  end loop;
  if pg_current_xact_id_if_assigned() is not null then
    perform tusk_fn.hold_lead(_term);
  end if;
  return _all[cardinality(_all)];
end $$;

-- Makes the next segment when the bounded ones are nearly full. For a moment nobody may use the log. The function waits
-- for that moment without a lock, since everybody else would have to wait behind the lock, and gives up if a
-- transaction goes on for long.
create function tusk_fn.add_segment(_term bigint, _hours int) returns text language plpgsql set jit = off as $$
#variable_conflict use_column
declare
  _here  bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
  _last  tusk.segment;
  _tail  tusk.segment;
  _width bigint;
  _hi    bigint;
  _name  text;
  _used  boolean;
begin
  perform tusk_fn.hold_lead(_term);
  select * into _last from tusk.segment s where s.hi is not null order by s.hi desc limit 1;
  select * into _tail from tusk.segment s where s.hi is null;
  _width := least(greatest(
    (_here - _last.made_xid::text::bigint) / greatest(extract(epoch from clock_timestamp() - _last.made_at),
      60) * 3600 * _hours, 100000), 200000000)::bigint;
  if _here + _width / 2 < _last.hi::text::bigint then
    return null;
  end if;
  if not tusk_fn.await_log(2000) then
    return null;
  end if;
  _name := 'task_' || (substr(_tail.name, 6)::bigint + 1);
  perform tusk_fn.make_segment(_name);
  lock table only tusk.log in access exclusive mode;
  execute format('select exists (select from tusk.%I)', _tail.name) into _used;
  _hi := greatest(_last.hi::text::bigint, case when _used then _here + 1 else 0 end) + _width;
  execute format('alter table tusk.log detach partition tusk.%I', _tail.name);
  execute format('alter table tusk.log attach partition tusk.%I for values from (%L) to (%L)', _tail.name,
    _last.hi::text, _hi::text);
  execute format('alter table tusk.log attach partition tusk.%I for values from (%L) to (maxvalue)', _name, _hi::text);
  update tusk.segment s set hi = _hi::text::xid8, made_xid = _here::text::xid8, made_at = clock_timestamp()
    where s.name = _tail.name;
  insert into tusk.segment (name) values (_name);
  return _name;
end $$;

-- Waits for a moment at which the log can be locked soon: every transaction that used it a quarter of a second before
-- has ended. Sets a lock timeout for the rest of the transaction, because everybody queues up behind a lock that waits
-- for a transaction which began since and stays open. Returns false if a transaction has used the log for longer.
create function tusk_fn.await_log(_most int) returns boolean language plpgsql as $$
declare
  _end   timestamptz := clock_timestamp() + _most * interval '1 ms';
  _begun timestamptz;
  _users text[];
  _waits int;
begin
  while clock_timestamp() < _end loop
    _begun := clock_timestamp();
    _users := array(
      select l.virtualtransaction from pg_locks l
      where l.relation = 'tusk.log'::regclass and l.database = (select d.oid from pg_database d
        where d.datname = current_database())
        and l.pid is distinct from pg_backend_pid());
    loop
      _waits := extract(epoch from clock_timestamp() - _begun) * 1000;
      if not exists (
        select from pg_locks l where l.relation = 'tusk.log'::regclass and l.virtualtransaction = any(_users)) then
        perform set_config('lock_timeout', greatest(50, least(50 + 2 * _waits, 250)) || 'ms', true);
        return true;
      end if;
      exit when _waits > 250;
      perform pg_sleep(0.01);
    end loop;
  end loop;
  return false;
end $$;

-- Makes the tables of a segment, which is not part of the log yet. It is one table while all queues keep their tasks
-- for about the same time.
create function tusk_fn.make_segment(_name text) returns void language plpgsql as $$
#variable_conflict use_column
declare
  c     record;
  _part text;
  _when text;
begin
  if not exists (select from tusk.class) then
    execute format('create table tusk.%I (like tusk.log including all)', _name);
    execute format('alter table tusk.%I replica identity full', _name);
    return;
  end if;
  select string_agg(format('when lane >> 16 = any(%L::bigint[]) then %L', x.queues, x.class), ' ') into _when
  from (select y.class, array_agg(y.queue order by y.queue) as queues from tusk.class y group by y.class) x;
  execute format('create table tusk.%I (like tusk.log including all)
    partition by list ((case %s else ''rest'' end) collate "C")', _name, _when);
  for c in
    select y.class, array_agg(y.queue order by y.queue) as queues from tusk.class y group by y.class
    union all
    select 'rest', null
  loop
    _part := _name || '_' || c.class;
    execute format('create table tusk.%I partition of tusk.%I for values in (%L)', _part, _name, c.class);
    execute format('alter table tusk.%I replica identity full', _part);
    insert into tusk.segment_part (name, segment, queues) values (_part, _name, c.queues);
  end loop;
end $$;

-- Returns the name of a table of the log that nothing needs any more: a segment, or the part of a segment for the
-- queues of one class. Tables that were detached from the log already come first.
create function tusk_fn.spent_segment(out parent text, out name text) language plpgsql set jit = off as $$
#variable_conflict use_column
declare
  s     tusk.segment;
  p     tusk.segment_part;
  _kept boolean := false;
begin
  select x.parent, x.name into parent, name
  from (select 'log' as parent, y.name from tusk.segment y union all select y.segment, y.name
    from tusk.segment_part y) x
  where not exists (select from pg_inherits i where i.inhrelid = to_regclass(format('tusk.%I', x.name)))
  limit 1;
  if found then
    return;
  end if;
  for s in
    select x.* from tusk.segment x
    where x.hi <= pg_snapshot_xmin(pg_current_snapshot())
      and (select count(*) from tusk.segment y where y.hi is not null) > 1
    order by x.hi
  loop
    if not exists (select from tusk.segment_part x where x.segment = s.name) then
      if exists (select from pg_partitioned_table t where t.partrelid = to_regclass(format('tusk.%I', s.name)))
        or not _kept and tusk_fn.is_spent(s.hi, null, '{}') then
        parent := 'log'; name := s.name;
        return;
      end if;
      _kept := true; -- and so are all later segments of a single table
    end if;
    for p in select x.* from tusk.segment_part x where x.segment = s.name loop
      if tusk_fn.is_spent(s.hi, p.queues, case when p.queues is null then
          array(select unnest(x.queues) from tusk.segment_part x where x.segment = s.name) else '{}' end) then
        parent := s.name; name := p.name;
        return;
      end if;
    end loop;
  end loop;
  parent := null; name := null;
end $$;

-- Whether, of some queues (null: of all but others), no lease and no completed task points below an xid, and every lane
-- is past it.
create function tusk_fn.is_spent(_hi xid8, _queues bigint[], _others bigint[]) returns boolean language plpgsql as $$
begin
  return not exists (
      select from tusk.lease l where l.lo < _hi and (_queues is null or l.lane >> 16 = any(_queues))
        and l.lane >> 16 <> all(_others))
    and not exists (
      select from tusk.outcome o where o.lo < _hi and (_queues is null or o.lane >> 16 = any(_queues))
        and o.lane >> 16 <> all(_others))
    and not exists (
      select from (
        select distinct l.id from tusk.lane l
        where (_queues is null or l.id >> 16 = any(_queues)) and l.id >> 16 <> all(_others)) l
      left join lateral (select p.done from tusk.lane_position p where p.lane = l.id order by p.no desc
        limit 1) p on true
      where pg_snapshot_xmin(coalesce(p.done, '1:1:')) < _hi
        and exists (select from tusk.log t where t.lane = l.id and t.xid < _hi
          and tusk_fn.unclaimed(t.lane, t.xid, tusk_fn.last_n(t.n, t.packed))));
end $$;

-- Drops a table of the log that nothing needs any more, and returns whether there was one. As for a new segment, nobody
-- may use the log for a moment.
create function tusk_fn.drop_segment(_term bigint) returns boolean language plpgsql set jit = off as $$
declare
  _parent text;
  _name   text;
begin
  perform tusk_fn.hold_lead(_term);
  select s.parent, s.name into _parent, _name from tusk_fn.spent_segment() s;
  if _name is null then
    return false;
  end if;
  if exists (select from pg_inherits i where i.inhrelid = to_regclass(format('tusk.%I', _name))) then
    if not tusk_fn.await_log(2000) then
      return false;
    end if;
    execute format('alter table tusk.%I detach partition tusk.%I', _parent, _name);
  end if;
  execute format('drop table if exists tusk.%I', _name);
  -- It is forgotten, and so are its entries in the catalogue.
  with part as (delete from tusk.segment_part where name = _name returning segment, queues),
  whole as (delete from tusk.segment where name = _name returning hi),
  gone as (
    select w.hi, null::bigint[] as queues, '{}'::bigint[] as others from whole w
    union all
    select s.hi, p.queues,
      array(select unnest(x.queues) from tusk.segment_part x where x.segment = p.segment and x.name <> _name
        and p.queues is null)
    from part p join tusk.segment s on s.name = p.segment)
  delete from tusk.catalogue c using gone g
  where c.hi <= g.hi and c.lo >= coalesce((select s.hi from tusk.segment s where s.hi < g.hi order by s.hi desc
    limit 1), '0')
    and (g.queues is null or c.lane >> 16 = any(g.queues)) and c.lane >> 16 <> all(g.others);
  return true;
end $$;

-- Makes the first segments of an empty log.
create function tusk_fn.first_segments() returns void language plpgsql set jit = off as $$
declare
  here bigint := pg_current_xact_id()::text::bigint;
  n    bigint := (select coalesce(max(substr(s.name, 6)::bigint) + 1, 0) from tusk.segment s);
  lo   text := 'minvalue';
  hi   text;
begin
  delete from tusk.segment_part;
  delete from tusk.segment;
  for i in 0 .. 2 loop
    hi := case when i < 2 then quote_literal(here + (i + 1) * 1000000) else 'maxvalue' end;
    execute format('create table tusk.task_%s partition of tusk.log for values from (%s) to (%s)', n + i, lo, hi);
    execute format('alter table tusk.task_%s replica identity full', n + i);
    insert into tusk.segment (name, hi) values ('task_' || n + i, case when i < 2
      then (here + (i + 1) * 1000000)::text::xid8 end);
    lo := hi;
  end loop;
end $$;
