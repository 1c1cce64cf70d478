-- Applies one change to tasks. Ops and results are numbered as in package store. Most
-- tasks are changed together; those with a key or a turn, and those that are pending,
-- running or completed, one by one.
create function tusk_fn.edit(_ids uuid[], _op smallint, _priority int, _queue text, _run_at timestamptz, _delay bigint, _reason text)
returns table (place int, result smallint, state smallint) language plpgsql set jit = off set lock_timeout = '300ms' as $$
#variable_conflict use_column
declare
  _done uuid[] := '{}';
  i     int;
  e     record;
begin
  perform tusk_fn.need_read_committed();
  perform tusk_fn.lock_places(_ids, _op, case when _op = 5 then tusk_fn.lane_of(_queue, 0) end);
  if cardinality(_ids) = (select count(distinct u) from unnest(_ids) u) then
    for e in select * from tusk_fn.edit_many(_ids, _op, _priority, _queue, _run_at, _delay, _reason) loop
      _done := _done || e.id;
      place := array_position(_ids, e.id); result := e.result; state := e.state;
      return next;
    end loop;
  end if;
  for i in select g from generate_subscripts(_ids, 1) g where _ids[g] <> all(_done) order by _ids[g], g loop
    return query select i, e.result, e.state from tusk_fn.edit_one(_ids[i], _op, _priority, _queue, _run_at, _delay, _reason) e;
  end loop;
end $$;

-- Changes those of the tasks together that need no more than another place, and
-- returns them: available, scheduled, retryable or dead ones without key and turn.
create function tusk_fn.edit_many(_ids uuid[], _op smallint, _priority int, _queue text, _run_at timestamptz, _delay bigint, _reason text)
returns table (id uuid, result smallint, state smallint) language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan set jit = off
as $$
#variable_conflict use_column
declare
  _now     timestamptz;
  _lanes   bigint[] := '{}';
  _waiting uuid[];
  _dead    uuid[] := '{}';
  _log     uuid[] := '{}';
  _xids    xid8[] := '{}';
  _ns      bigint[] := '{}';
  _moves   boolean := _op in (4, 5);
  _ended   uuid[];
begin
  if _op <> 2 then
    _lanes := array(
      select distinct t.lane
      from unnest(_ids) u(id)
      cross join lateral (
        select t.lane from tusk_fn.rows_of(u.id) t
        where t.key is null and t.turn is not true and tusk_fn.unclaimed(t.lane, t.xid, t.n)
        offset 0) t
      order by t.lane);
    _lanes := array(select l from unnest(_lanes) l where tusk_fn.try_lane(l));
    perform tusk_fn.unpack(_ids, _lanes);
  end if;
  if _op in (2, 3) then
    _dead := array(
      select d.id from tusk.dead d
      where d.id = any(_ids) and d.key is null and d.turn is not true
        and (_op = 3 or not exists (select from tusk.need n where n.child = d.id))
      order by d.id for update of d skip locked);
  end if;
  _waiting := array(
    select w.id from tusk.waiting w
    where w.id = any(_ids) and w.state in (1, 5) and w.key is null and w.turn is not true
    order by w.id for update skip locked);
  select array_agg(t.id), array_agg(t.xid), array_agg(t.n) into _log, _xids, _ns
  from tusk.log t
  where t.id = any(_ids) and t.packed is null and t.lane = any(_lanes) and t.key is null and t.turn is not true and tusk_fn.unclaimed(t.lane, t.xid, t.n)
    and not (_moves and t.lane = tusk_fn.lane_moved(t.lane, _op, _priority, _queue));
  if _moves then
    return query
    select t.id, 1::smallint, 3::smallint from tusk.log t
    where t.id = any(_ids) and t.packed is null and t.lane = any(_lanes) and t.key is null and t.turn is not true and tusk_fn.unclaimed(t.lane, t.xid, t.n)
      and t.id <> all(coalesce(_log, '{}'))
    union all
    select w.id, 1::smallint, w.state from tusk.waiting w
    where w.id = any(_waiting) and w.lane = tusk_fn.lane_moved(w.lane, _op, _priority, _queue);
    _waiting := array(
      select w.id from tusk.waiting w
      where w.id = any(_waiting) and w.lane <> tusk_fn.lane_moved(w.lane, _op, _priority, _queue));
    perform tusk_fn.name_lanes(array_agg(m.lane), array_agg(m.queue))
    from (
      select distinct tusk_fn.lane_moved(l.lane, _op, _priority, _queue) as lane, case when _op = 5 then _queue else tusk_fn.queue_of(l.lane) end as queue
      from (
        select w.lane from tusk.waiting w where w.id = any(_waiting)
        union select t.lane from tusk.log t where t.id = any(_log) and t.packed is null and t.xid = any(_xids) and t.n = any(_ns)) l) m;
  end if;
  _now := clock_timestamp();
  if _op = 1 then
    return query
    insert into tusk.dead (id, state, lane, run_at, enqueued_at, attempt, crashes, kind, args, expires_at, claimed_at, tenant, key,
      tags, settings, failure, reason, finished_at, workflow, turn, partition)
    select w.id, 7, w.lane, w.run_at, w.enqueued_at, w.attempt, w.crashes, w.kind, w.args, w.expires_at, w.claimed_at, w.tenant, w.key,
      w.tags, w.settings, w.failure, _reason, _now, w.workflow, w.turn, w.partition
    from tusk_fn.take_many(_waiting, _dead, _log, _xids, _ns) w
    returning id, 1::smallint, 7::smallint;
  elsif _op = 3 then
    return query select w.id, 1::smallint, 0::smallint from tusk_fn.take_many(_waiting, _dead, _log, _xids, _ns) w;
  else
    return query
    with w as materialized (
      select x.*, nextval('tusk.task_n') as no, not x.stays and x.due <= _now and not x.early as goes
      from (
        select t.*, case
            when not _moves then tusk_fn.due(_now, _run_at, _delay)
            when t.state = 3 then least(t.run_at, _now) -- enqueued while this waited, it may seem to be due later
            else t.run_at end as due,
          _moves and t.state in (1, 5) as stays, -- among the waiting, even when it is due
          t.claimed_at is not null and exists (select from tusk_fn.rows_of(t.id) y where y.xid > pg_current_xact_id()) as early
        from tusk_fn.take_many(_waiting, _dead, _log, _xids, _ns) t
        order by t.id) x),
    logged as (
      insert into tusk.log (lane, n, id, enqueued_at, attempt, crashes, kind, args, run_at, expires_at, claimed_at, tenant,
        key, tags, settings, failure, workflow, turn, partition)
      select tusk_fn.lane_moved(w.lane, _op, _priority, _queue), w.no, w.id, w.enqueued_at, case when w.state >= 6 then 0 else w.attempt end,
        case when w.state >= 6 then 0 else w.crashes end, w.kind, w.args, w.due, w.expires_at, w.claimed_at, w.tenant, w.key, w.tags,
        w.settings, w.failure, w.workflow, w.turn, w.partition
      from w where w.goes order by w.no),
    kept as (
      insert into tusk.waiting (id, state, lane, run_at, n, enqueued_at, attempt, crashes, kind, args, expires_at, claimed_at, tenant,
        key, tags, settings, failure, workflow, turn, partition)
      select w.id, case when w.state = 5 and (w.stays or w.due > _now) then 5 else 1 end, tusk_fn.lane_moved(w.lane, _op, _priority, _queue),
        case when w.stays then w.due else greatest(w.due, _now) end, w.no, w.enqueued_at, case when w.state >= 6 then 0 else w.attempt end,
        case when w.state >= 6 then 0 else w.crashes end, w.kind, w.args, w.expires_at, w.claimed_at, w.tenant,
        w.key, w.tags, w.settings, w.failure, w.workflow, w.turn, w.partition
      from w where not w.goes)
    select w.id, 1::smallint, case when w.goes then 3 when w.state = 5 and (w.stays or w.due > _now) then 5 else 1 end::smallint from w;
  end if;
  if _op in (1, 3) then
    _ended := _waiting || _dead || coalesce(_log, '{}');
    if _op = 3 then
      perform tusk_fn.forget_tasks(_ended);
    end if;
    if pg_relation_size('tusk.need') > 0 then
      delete from tusk.open_need x where x.child = any(_ended);
      perform tusk_fn.forget_doubts(_ended);
    end if;
    if pg_relation_size('tusk.open_need') > 0 and cardinality(_ended) > 0 then
      perform tusk_fn.tell(_ended, array(select case when _op = 1 then 7 else 0 end::smallint from unnest(_ended)));
    end if;
  end if;
end $$;

-- The lane that a move or a new priority takes a task to; its own with other changes.
create function tusk_fn.lane_moved(_lane bigint, _op smallint, _priority int, _queue text) returns bigint language plpgsql immutable as $$
begin
  return case _op
    when 4 then (_lane >> 16 << 16) + _priority + 32768
    when 5 then tusk_fn.lane_of(_queue, 0) + tusk_fn.priority_of(_lane)
    else _lane end;
end $$;

-- Takes tasks out of where they are, all of them locked there: the waiting, the dead,
-- and the log with the lanes of its rows. State is what they were. Rows that a lane's
-- tally counts count as having left the lane.
create function tusk_fn.take_many(_waiting uuid[], _dead uuid[], _log uuid[], _xids xid8[], _ns bigint[]) returns setof tusk.waiting
language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan set jit = off
as $$
begin
  return query delete from tusk.waiting w where w.id = any(_waiting) returning w.*;
  return query delete from tusk.dead d where d.id = any(_dead)
    returning d.id, d.state, d.lane, d.run_at, 0::bigint, d.enqueued_at, d.attempt, d.crashes, d.kind, d.args, d.expires_at, d.claimed_at,
      d.tenant, d.key, d.tags, d.settings, d.failure, d.workflow, d.turn, d.partition, null::timestamptz;
  return query
  with gone as (
    delete from tusk.log t using unnest(_log, _xids, _ns) u(id, xid, n)
    where t.id = u.id and t.packed is null and t.xid = u.xid and t.n = u.n
    returning t.*),
  left_lane as (
    insert into tusk.lane_position (lane, no, done, win, at_xid, at_n, claimed)
    select g.lane, coalesce(p.no, 0) + 1, coalesce(p.done, '1:1:'), p.win, coalesce(p.at_xid, '0'), coalesce(p.at_n, 0),
      coalesce(p.claimed, 0) + g.rows
    from (
      select x.lane, count(*) as rows from gone x join tusk.lane_tally a on a.lane = x.lane
      where pg_visible_in_snapshot(x.xid, a.seen) group by x.lane) g
    left join lateral (select * from tusk.lane_position q where q.lane = g.lane order by q.no desc limit 1) p on true)
  select g.id, 3::smallint, g.lane, coalesce(g.run_at, g.enqueued_at), g.n, g.enqueued_at, g.attempt, g.crashes, g.kind, g.args,
    g.expires_at, g.claimed_at, g.tenant, g.key, g.tags, g.settings, g.failure, g.workflow, g.turn, g.partition, null::timestamptz
  from gone g;
end $$;

-- Finds the task, locks what holds it, which lock_places has usually done, and looks
-- again in a new statement. A task that moved on in between is looked for anew.
create function tusk_fn.edit_one(_id uuid, _op smallint, _priority int, _queue text, _run_at timestamptz, _delay bigint, _reason text)
returns table (result smallint, state smallint) language plpgsql as $$
#variable_conflict use_column
declare
  _now timestamptz := clock_timestamp();
  s    tusk_fn.task_state;
  t    tusk_fn.task;
  _mine boolean;
begin
  for i in 1 .. 5 loop
    _mine := true;
    select * into s from tusk_fn.state_of(_id) x limit 1;
    if not found then
      return query select 4::smallint, 0::smallint;
      return;
    elsif s.state = 4 and _op <> 1 or s.state >= 6 and _op not in (2, 3) or s.state = 3 and _op = 2 then
      return query select 3::smallint, s.state;
      return;
    end if;
    if s.key is not null then
      perform 1 from tusk.key k where k.queue = s.lane >> 16 and k.key = tusk_fn.tenant_key(s.tenant, s.key) for update skip locked;
      _mine := found or not exists (select from tusk.key k where k.queue = s.lane >> 16 and k.key = tusk_fn.tenant_key(s.tenant, s.key));
    end if;
    if s.state in (1, 2, 5) then
      perform 1 from tusk.waiting x where x.id = _id for update skip locked;
      _mine := _mine and found;
    elsif s.state = 4 then
      perform 1 from tusk.lease x where x.token = s.token and x.lane = s.lane for share skip locked;
      _mine := _mine and found;
    elsif s.state = 3 then
      if tusk_fn.try_lane(s.lane) then
        perform tusk_fn.unpack(array[_id], array[s.lane]);
      else
        _mine := false;
      end if;
    else
      perform 1 from tusk.dead x where x.id = _id for update skip locked;
      if not found then
        perform 1 from tusk.outcome x
        where x.ctid = any(array(select o.at from tusk_fn.rows_of(_id) y cross join lateral tusk_fn.flush_of(y.lane, y.xid, _id) o))
        for update skip locked;
      end if;
      _mine := _mine and found;
    end if;
    if exists (select from tusk_fn.state_of(_id) x where x.state = s.state and x.lane = s.lane and x.attempt = s.attempt
      and x.token is not distinct from s.token) then
      if not _mine then
        perform tusk_fn.begin_anew();
      end if;
      return query select * from tusk_fn.apply(s, _op, _priority, _queue, _run_at, _delay, _reason, _now);
      return;
    end if;
  end loop;
  return query select 3::smallint, s.state;
end $$;

-- Applies a change to a task whose place is locked, and whose state allows it but
-- where it is pending.
create function tusk_fn.apply(s tusk_fn.task_state, _op smallint, _priority int, _queue text, _run_at timestamptz, _delay bigint,
  _reason text, _now timestamptz)
returns table (result smallint, state smallint) language plpgsql as $$
#variable_conflict use_column
declare
  w      tusk.waiting;
  _lane  bigint := s.lane;
  _key   bigint := s.lane >> 16;
begin
  if s.state = 2 then
    if _op not in (1, 3) and not (_op = 4 and exists (select from tusk.waiting x where x.id = s.id and x.line is not null)) then
      return query select 3::smallint, s.state;
      return;
    end if;
    update tusk.key k set awaiting = null where k.queue = _key and k.key = tusk_fn.tenant_key(s.tenant, s.key) and k.awaiting = s.id;
    if found then
      delete from tusk.waiting x where x.id = s.id;
      perform tusk_fn.forget_needs(s.id, true);
      perform tusk_fn.tell_one(s.id, 0::smallint);
      return query select 1::smallint, case when _op = 1 then 7 else 0 end::smallint;
      return;
    end if;
  elsif s.state = 4 then
    insert into tusk.stop (id, token, reason) values (s.id, s.token, _reason)
    on conflict (id) do update set token = excluded.token, reason = excluded.reason;
    return query select 2::smallint, s.state;
    return;
  end if;
  if _op in (4, 5) then
    _lane := case when _op = 4 then (s.lane >> 16 << 16) + _priority + 32768
      else tusk_fn.lane_of(_queue, 0) + tusk_fn.priority_of(s.lane) end;
    if _lane = s.lane and s.state <> 2 then
      return query select 1::smallint, s.state;
      return;
    end if;
    perform tusk_fn.name_lanes(array[_lane], array[case when _op = 5 then _queue else tusk_fn.queue_of(s.lane) end]);
    if _op = 5 and s.key is not null and not tusk_fn.move_key(_key, _lane >> 16, tusk_fn.tenant_key(s.tenant, s.key), s.id) then
      return query select 5::smallint, s.state;
      return;
    end if;
  elsif _op = 2 and s.state >= 6 and s.key is not null then
    update tusk.key k set holder = s.id where k.queue = _key and k.key = tusk_fn.tenant_key(s.tenant, s.key) and k.holder is null;
    if not found then
      return query select 5::smallint, s.state;
      return;
    end if;
  end if;
  perform tusk_fn.take_out(s, _op);
  if s.turn and (_op in (1, 3, 5) or _op = 6 and s.state = 3) then
    delete from tusk.turn h where h.id = s.id;
  end if;
  if _op = 3 then
    delete from tusk.attempt x where x.id = s.id;
    delete from tusk.note x where x.id = s.id;
    perform tusk_fn.forget_needs(s.id, true);
    if s.key is not null then
      perform tusk_fn.forget_key(_key, tusk_fn.tenant_key(s.tenant, s.key), s.id);
    end if;
    perform tusk_fn.tell_one(s.id, 0::smallint);
    return query select 1::smallint, 0::smallint;
    return;
  elsif _op = 1 then
    insert into tusk.dead (id, state, lane, run_at, enqueued_at, attempt, crashes, kind, args, expires_at, claimed_at, tenant, key,
      tags, settings, failure, reason, finished_at, workflow, turn, partition)
    values (s.id, 7, s.lane, s.run_at, s.enqueued_at, s.attempt, s.crashes, s.kind, s.args, s.expires_at, s.claimed_at,
      s.tenant, s.key, s.tags, s.settings, s.failure, _reason, _now, s.workflow, s.turn, s.partition);
    perform tusk_fn.forget_needs(s.id, false);
    if s.key is not null then
      perform tusk_fn.free_key(_key, tusk_fn.tenant_key(s.tenant, s.key), s.id, _now);
    end if;
    perform tusk_fn.tell_one(s.id, 7::smallint);
    return query select 1::smallint, 7::smallint;
    return;
  end if;
  w.id := s.id; w.state := case when s.state = 5 then 5 else 1 end; w.lane := _lane; w.n := nextval('tusk.task_n');
  w.run_at := case
    when _op in (2, 6) then tusk_fn.due(_now, _run_at, _delay)
    when s.state = 3 then least(s.run_at, _now) -- enqueued while this waited, it may seem to be due later
    else s.run_at end;
  w.enqueued_at := s.enqueued_at; w.attempt := s.attempt; w.crashes := s.crashes; w.kind := s.kind; w.args := s.args;
  w.expires_at := s.expires_at; w.claimed_at := s.claimed_at; w.tenant := s.tenant; w.key := s.key; w.tags := s.tags;
  w.settings := s.settings; w.failure := s.failure; w.workflow := s.workflow; w.turn := s.turn; w.partition := s.partition;
  if s.state >= 6 then
    w.attempt := 0; w.crashes := 0;
    if pg_relation_size('tusk.need') > 0 and tusk_fn.need_again(s.id) then
      w.state := 2;
    end if;
  end if;
  if _op in (4, 5) and s.state in (1, 5) then
    insert into tusk.waiting select w.*; -- it stays what it is, even when due
    return query select 1::smallint, s.state;
    return;
  end if;
  return query select 1::smallint, tusk_fn.place(w);
end $$;

-- Takes a task out of where it is, for another place or for none.
create function tusk_fn.take_out(s tusk_fn.task_state, _op smallint) returns void language plpgsql as $$
#variable_conflict use_column
declare
  t tusk_fn.task;
begin
  if s.state in (1, 2, 5) then
    delete from tusk.waiting x where x.id = s.id;
  elsif s.state >= 6 then
    delete from tusk.dead x where x.id = s.id;
    if found then
      return;
    end if;
  end if;
  if s.state in (3, 6) then
    select * into t from tusk_fn.rows_of(s.id) x order by x.xid desc, x.n desc limit 1;
    if s.state = 3 then
      perform tusk_fn.take(t);
      return;
    end if;
    if _op = 2 then
      insert into tusk.attempt (id, number, worker, started_at, ended_at, state, error, trace, fingerprint)
      select s.id, s.attempt, o.worker, s.claimed_at, s.finished_at, 6, '', '', ''
      from tusk_fn.flush_of(t.lane, t.xid, t.id) o;
    end if;
    update tusk.outcome o
    set firsts = array(select i.id from tusk_fn.ids_of(o.firsts, o.counts) i where i.id <> s.id order by i.place),
      counts = null,
      ago = case when o.ago is not null then
        array(select o.ago[i.place] from tusk_fn.ids_of(o.firsts, o.counts) i where i.id <> s.id order by i.place) end,
      keyed = o.keyed - case when s.key is null then 0 else 1 end
    where o.ctid = any(array(select f.at from tusk_fn.flush_of(t.lane, t.xid, t.id) f));
  end if;
end $$;

-- Moves the key of an unfinished task to another queue, unless it is held there.
create function tusk_fn.move_key(_from bigint, _to bigint, _key text, _id uuid) returns boolean language plpgsql as $$
#variable_conflict use_column
declare
  k tusk.key;
begin
  select * into k from tusk.key y where y.queue = _from and y.key = _key;
  insert into tusk.key as y (queue, key, holder, source_at, tasks) values (_to, _key, _id, k.source_at, 1)
  on conflict (queue, key) do update
  set holder = _id, source_at = greatest(y.source_at, excluded.source_at), tasks = y.tasks + 1
  where y.holder is null;
  if not found then
    return false;
  end if;
  perform tusk_fn.forget_key(_from, _key, _id);
  return true;
end $$;
