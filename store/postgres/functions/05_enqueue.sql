-- Returns when a task is due: now at the earliest. It is declared stable, as the addition of an interval is. If it were
-- declared immutable, it would not be inlined.
create function tusk_fn.due(_now timestamptz, _run_at timestamptz, _delay bigint) returns timestamptz
  language sql stable as $$
  select greatest(coalesce(_run_at, _now) + greatest(coalesce(_delay, 0), 0) * interval '1 us', _now)
$$;

-- The earlier of the two expiries that a task may have.
create function tusk_fn.expiry(_now timestamptz, _at timestamptz, _in bigint) returns timestamptz
  language sql stable as $$
  select least(_at, case when _in > 0 then _now + _in * interval '1 us' end)
$$;

-- Stores a task in the log or, if it is not due, among the waiting tasks. A task in state 2 needs others first. A task
-- that runs in turns gets in line unless it has a turn: if line is set, it has none, and otherwise this is looked up.
-- The function reads the clock itself, because the run time may have been computed before its caller waited for a lock.
-- Returns the name to ring: the queue of an available task, or the leader's bell for a task in line.
--
-- If a task has several rows in the log, the one of the latest transaction counts. So a transaction that began before
-- the row of the latest attempt was written must not write another: it leaves the task to the next admission.
create function tusk_fn.place(w tusk.waiting) returns text language plpgsql as $$
declare
  _now timestamptz := clock_timestamp();
begin
  if w.turn and w.state <> 2 and w.run_at <= _now
    and (w.line is not null or not exists (select from tusk.turn h where h.id = w.id)) then
    w.state := 2; w.line := coalesce(w.line, _now);
  else
    w.line := null;
  end if;
  if w.state <> 2 and w.run_at <= _now and w.claimed_at is not null
    and exists (select from tusk_fn.rows_of(w.id) y where y.xid > pg_current_xact_id()) then
    w.state := 1; w.run_at := _now;
    insert into tusk.waiting select w.*;
    return null;
  end if;
  if w.state = 2 or w.run_at > _now then
    insert into tusk.waiting select w.*;
    return case when w.line is not null then E'\x02turns' end;
  end if;
  insert into tusk.log (lane, n, id, enqueued_at, attempt, crashes, kind, args, run_at, expires_at, claimed_at, tenant,
    key, tags, settings, failure, workflow, turn, partition)
  values (w.lane, w.n, w.id, w.enqueued_at, w.attempt, w.crashes, w.kind, w.args, w.run_at, w.expires_at,
    w.claimed_at, w.tenant, w.key, w.tags, w.settings, w.failure, w.workflow, w.turn, w.partition);
  return tusk_fn.queue_of(w.lane);
end $$;

-- Combines a key with its tenant, so that no other tenant can name it. Null without a key.
create function tusk_fn.tenant_key(_tenant text, _key text) returns text language sql immutable as $$
  select octet_length(coalesce(_tenant, '')) || ':' || coalesce(_tenant, '') || _key
$$;

-- Stores one task that has a key.
create function tusk_fn.put_keyed(w tusk.waiting, _conflict smallint, _source timestamptz, _now timestamptz,
  out id uuid, out result smallint)
language plpgsql as $$
#variable_conflict use_column
declare
  _queue bigint := w.lane >> 16;
  _key   text := tusk_fn.tenant_key(w.tenant, w.key);
  k      tusk.key;
begin
  insert into tusk.key as y (queue, key, holder, source_at, tasks)
  values (_queue, _key, w.id, case when _conflict = 2 then coalesce(_source, _now) end, 1)
  on conflict (queue, key) do update
  set holder = excluded.holder, tasks = y.tasks + 1, source_at = greatest(y.source_at, excluded.source_at)
  where y.holder is null and y.ended is distinct from excluded.holder and not (_conflict = 3 and y.tasks > 0)
    and (_conflict = 2 and _source <= y.source_at) is not true;
  if found then
    perform tusk_fn.place(w);
    id := w.id; result := 1;
    return;
  end if;
  select * into k from tusk.key y where y.queue = _queue and y.key = _key; -- it is locked
  if w.id = k.holder or w.id = k.ended then -- the call is a repetition, and must not move the source's time
    id := w.id; result := 2;
    return;
  elsif _conflict = 2 and _source <= k.source_at then
    id := coalesce(k.awaiting, k.holder, k.ended, '00000000-0000-0000-0000-000000000000'); result := 5;
    return;
  elsif _conflict = 2 then
    update tusk.key y set source_at = greatest(y.source_at, coalesce(_source, _now)) where y.queue = _queue
      and y.key = _key;
  elsif k.holder is null then
    id := coalesce(k.ended, '00000000-0000-0000-0000-000000000000'); result := 2;
    return;
  end if;
  if (case when _conflict in (1, 2) then tusk_fn.replace_unstarted(k.holder, w, _now) end) then
    id := k.holder; result := 3;
  elsif _conflict <> 2 then
    id := k.holder; result := 2;
  elsif k.awaiting is null then -- it runs once the running task has ended
    id := w.id; result := 4; w.state := 2; w.line := null;
    insert into tusk.waiting select w.*;
    update tusk.key y set awaiting = w.id where y.queue = _queue and y.key = _key;
  else
    id := k.awaiting; result := 4;
    update tusk.waiting y set lane = w.lane, kind = w.kind, args = w.args, tags = w.tags, settings = w.settings,
      run_at = w.run_at, expires_at = w.expires_at
    where y.id = k.awaiting;
  end if;
  if result = 3 or id = k.awaiting then
    insert into tusk.note (id, changed_at, changed) values (id, clock_timestamp(), 'replaced')
    on conflict (id) do update set changed_at = excluded.changed_at, changed = excluded.changed;
  end if;
end $$;

-- Replaces the values of a task that has not started. Its key is locked, so only a claim, an admission or a grant can
-- have moved it. A task that needs others keeps its row, because a transaction that sets it free looks for it there.
create function tusk_fn.replace_unstarted(_id uuid, w tusk.waiting, _now timestamptz) returns boolean
  language plpgsql as $$
#variable_conflict use_column
declare
  old tusk.waiting;
  t   tusk_fn.task;
begin
  for i in 1 .. 3 loop
    delete from tusk.unready y where y.id = _id and (y.state <> 2 or y.line is not null) returning * into old;
    if found then
      w.id := _id; w.enqueued_at := old.enqueued_at; w.attempt := old.attempt; w.crashes := old.crashes;
      w.claimed_at := old.claimed_at; w.failure := old.failure; w.state := 1;
      w.line := case when old.line is not null then _now end;
      if old.line is not null and old.lane = w.lane and w.run_at <= _now then -- it keeps its place in line
        w.line := old.line; w.n := old.n; w.run_at := old.run_at;
      end if;
      w.workflow := old.workflow; w.turn := old.turn; w.partition := old.partition;
      perform tusk_fn.place(w);
      return true;
    end if;
    update tusk.waiting y set lane = w.lane, kind = w.kind, args = w.args, tags = w.tags, settings = w.settings,
      run_at = w.run_at, expires_at = w.expires_at
    where y.id = _id;
    if found then
      return true;
    end if;
    select * into t from tusk_fn.rows_of(_id) y order by y.xid desc, y.n desc limit 1; -- its key keeps it out of packs
    if found then
      perform tusk_fn.lock_lane(t.lane);
      if tusk_fn.unclaimed(t.lane, t.xid, t.n)
        and exists (select from tusk.log y where y.lane = t.lane and y.xid = t.xid and y.n = t.n) then
        if t.lane = w.lane and w.run_at <= _now then
          update tusk.log y set kind = w.kind, args = w.args, tags = w.tags, settings = w.settings,
            expires_at = w.expires_at
          where y.lane = t.lane and y.xid = t.xid and y.n = t.n;
          insert into tusk.catalogue (lane, kind, tag, lo, hi, newest, oldest, from_at, until_at, tasks, ids)
          select t.lane, x.kind, x.tag, t.xid, (t.xid::text::bigint + 1)::text::xid8, t.id, t.id, t.enqueued_at,
            t.enqueued_at, 1, array[t.id]
          from (
            select left(w.kind, 64) as kind, null as tag where left(w.kind, 64) <> t.kind
            union all
            select null, u.tag from unnest(tusk_fn.short_tags(w.tags)) u(tag)
            where u.tag is not null and (t.tags is null or u.tag <> all(t.tags))) x;
          return true;
        end if;
        delete from tusk.log y where y.lane = t.lane and y.xid = t.xid and y.n = t.n;
        insert into tusk.lane_position (lane, no, done, win, at_xid, at_n, claimed) -- if its tally counts the row
        select t.lane, coalesce(p.no, 0) + 1, coalesce(p.done, '1:1:'), p.win, coalesce(p.at_xid, '0'),
          coalesce(p.at_n, 0), coalesce(p.claimed, 0) + 1
        from tusk.lane_tally a
        left join lateral (
          select * from tusk.lane_position q where q.lane = a.lane order by q.no desc limit 1) p on true
        where a.lane = t.lane and pg_visible_in_snapshot(t.xid, a.seen);
        if t.turn and w.run_at > _now then -- a task that is postponed gives its turn back
          insert into tusk.held (back, ids) values (true, array[_id]);
        end if;
        w.id := _id; w.enqueued_at := t.enqueued_at; w.attempt := t.attempt; w.crashes := t.crashes;
        w.claimed_at := t.claimed_at; w.failure := t.failure; w.state := 1; w.line := null;
        w.workflow := t.workflow; w.turn := t.turn; w.partition := t.partition;
        perform tusk_fn.place(w);
        return true;
      end if;
      if exists (select from tusk_fn.running r where r.id = _id) then
        return false;
      end if;
    end if;
  end loop;
  return false;
end $$;

-- Frees a key whose holder has ended, and passes it on to the task that waits for it, if any. Returns the name to ring,
-- as place does. Here, and wherever a function takes a key with its queue, the key is what tenant_key returns.
create function tusk_fn.free_key(_queue bigint, _key text, _id uuid, _now timestamptz) returns text
  language plpgsql as $$
#variable_conflict use_column
declare
  _next uuid;
  w     tusk.waiting;
begin
  update tusk.key y
  set holder = y.awaiting, awaiting = null, ended = _id, tasks = y.tasks + (y.awaiting is not null)::int
  where y.queue = _queue and y.key = _key and y.holder = _id
  returning y.holder into _next;
  if _next is null then
    return null;
  end if;
  if pg_relation_size('tusk.open_need') > 0 then
    perform 1 from tusk.waiting x where x.id = _next for update;
    if exists (select from tusk.open_need o where o.child = _next) then
      return null; -- it still needs others
    end if;
  end if;
  delete from tusk.waiting y where y.id = _next returning * into w;
  w.state := 1;
  w.line := _now; -- a pending task has no turn
  w.n := nextval('tusk.task_n');
  w.run_at := greatest(w.run_at, _now);
  return tusk_fn.place(w);
end $$;

-- Removes a task from its key, and deletes the key with the last task.
create function tusk_fn.forget_key(_queue bigint, _key text, _id uuid) returns void language plpgsql as $$
#variable_conflict use_column
begin
  update tusk.key y set tasks = y.tasks - 1, holder = nullif(y.holder, _id), ended = nullif(y.ended, _id)
  where y.queue = _queue and y.key = _key;
  delete from tusk.key y where y.queue = _queue and y.key = _key and y.tasks <= 0;
end $$;

-- Locks the keys of tasks and the tasks that hold these keys, and gives the free keys to tasks that are due. Returns
-- the places of those tasks.
create function tusk_fn.take_new_keys(_tasks tusk_fn.new_task[], _pending boolean[], _now timestamptz) returns int[]
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan
  set jit = off as $$
declare
  _ids    uuid[];
  _queues bigint[];
  _own    text[]; -- the keys as their tenants own them
  _held   uuid[];
  _lane   bigint;
  _mine   int[];
  _free   tid[];
begin
  _ids := array(select x.id from unnest(_tasks) with ordinality x order by x.ordinality);
  _queues := array(select x.lane >> 16 from unnest(_tasks) with ordinality x order by x.ordinality);
  _own := array(
    select tusk_fn.tenant_key(x.tenant, x.key) from unnest(_tasks) with ordinality x order by x.ordinality);
  perform tusk_fn.lock_keys(_queues, _own);
  _held := tusk_fn.tasks_of_keys(
    array(select _queues[x.ordinality] from unnest(_tasks) with ordinality x where x.conflict in (1, 2)
      order by x.ordinality),
    array(select _own[x.ordinality] from unnest(_tasks) with ordinality x where x.conflict in (1, 2)
      order by x.ordinality));
  if cardinality(_held) > 0 then
    perform tusk_fn.lock_waiting(_held, '{}');
    for _lane in -- lanes in which they are available
      select distinct t.lane
      from unnest(_held) u(id)
      cross join lateral (
        select t.lane from tusk_fn.rows_of(u.id) t where tusk_fn.unclaimed(t.lane, t.xid, t.n) offset 0) t
      order by t.lane
    loop
      perform tusk_fn.lock_lane(_lane);
    end loop;
  end if;
  -- Skips keys that are held or that the call names twice. New keys are stored in the order in which keys are locked.
  _mine := array(
    select min(k.ordinality)::int
    from unnest(_tasks) with ordinality k where k.key is not null
    group by k.lane >> 16, tusk_fn.tenant_key(k.tenant, k.key)
    having count(*) = 1 and bool_and(k.conflict in (0, 1) and _pending[k.ordinality] is not true
      and tusk_fn.due(_now, k.run_at, k.delay) <= _now));
  _free := array(
    select y.ctid from unnest(_mine) m
    cross join lateral (
      select x.ctid from tusk.key x where x.queue = _queues[m] and x.key = _own[m] and x.holder is null
        and x.ended is distinct from _ids[m] offset 0) y);
  with mine as materialized (
    select m as at, _queues[m] as queue, _own[m] as key, _ids[m] as id from unnest(_mine) m),
  made as (
    insert into tusk.key (queue, key, holder, tasks)
    select m.queue, m.key, m.id, 1 from mine m order by m.queue, m.key collate "C"
    on conflict do nothing
    returning holder),
  had as (
    update tusk.key y set holder = m.id, tasks = y.tasks + 1
    from mine m where y.ctid = any(_free) and y.queue = m.queue and y.key = m.key
    returning y.holder)
  select array_agg(m.at) into _mine from mine m where m.id in (select t.holder from made t union all select t.holder
    from had t);
  return coalesce(_mine, '{}');
end $$;

-- Stores tasks of any kind and returns the result of each. It draws their numbers first, so that the lanes have them in
-- the order of the call. Tasks marked in _pending need others, as put_needing has found out.
create function tusk_fn.put(_tasks tusk_fn.new_task[], _pending boolean[] default null)
returns table (place int, id uuid, result smallint)
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
  _now  timestamptz := clock_timestamp();
  _ns   bigint[];
  _easy int[]; -- tasks whose key was free: they are stored as if they had none
  w     tusk.waiting;
  t     record;
begin
  perform tusk_fn.need_read_committed();
  _ns := array(select nextval('tusk.task_n') from generate_subscripts(_tasks, 1));
  if (select count(x.key) from unnest(_tasks) x) > 1 then
    _easy := tusk_fn.take_new_keys(_tasks, _pending, _now);
  end if;
  insert into tusk.log (lane, n, id, enqueued_at, kind, args, run_at, expires_at, tenant, key, tags, settings,
    workflow, partition)
  select x.lane, _ns[x.ordinality], x.id, _now, x.kind, x.args, _now,
    tusk_fn.expiry(_now, x.expires_at, x.expires_in), x.tenant, x.key, x.tags::text[], x.settings, x.workflow,
    x.partition
  from unnest(_tasks) with ordinality x
  where (x.key is null or x.ordinality = any(_easy)) and tusk_fn.due(_now, x.run_at, x.delay) <= _now
    and x.turn is not true and _pending[x.ordinality] is not true;
  insert into tusk.waiting (id, state, lane, run_at, n, enqueued_at, attempt, crashes, kind, args, expires_at, tenant,
    key, tags, settings, workflow, turn, partition, line)
  select x.id, case when _pending[x.ordinality] or d.due <= _now then 2 else 1 end, x.lane, d.due, _ns[x.ordinality],
    _now, 0, 0, x.kind, x.args, tusk_fn.expiry(_now, x.expires_at, x.expires_in), x.tenant, x.key, x.tags::text[],
    x.settings, x.workflow, x.turn, x.partition,
    case when _pending[x.ordinality] is not true and d.due <= _now then _now end
  from unnest(_tasks) with ordinality x
  cross join lateral (select tusk_fn.due(_now, x.run_at, x.delay) as due) d
  where (x.key is null or x.ordinality = any(_easy)) and (d.due > _now or x.turn or _pending[x.ordinality]);
  return query
  select x.ordinality::int, x.id, 1::smallint from unnest(_tasks) with ordinality x
  where x.key is null or x.ordinality = any(_easy);
  for t in
    select x.* from unnest(_tasks) with ordinality x
    where x.key is not null and (x.ordinality = any(_easy)) is not true
    order by x.lane >> 16, tusk_fn.tenant_key(x.tenant, x.key) collate "C", x.ordinality
  loop
    w.id := t.id; w.state := case when _pending[t.ordinality] then 2 else 1 end; w.lane := t.lane;
    w.run_at := tusk_fn.due(_now, t.run_at, t.delay);
    w.n := _ns[t.ordinality]; w.enqueued_at := _now; w.attempt := 0; w.crashes := 0; w.kind := t.kind; w.args := t.args;
    w.expires_at := tusk_fn.expiry(_now, t.expires_at, t.expires_in); w.tenant := t.tenant; w.key := t.key;
    w.tags := t.tags::text[]; w.settings := t.settings; w.claimed_at := null; w.failure := null;
    w.workflow := t.workflow; w.turn := t.turn; w.partition := t.partition; w.line := _now;
    return query select t.ordinality::int, p.id, p.result from tusk_fn.put_keyed(w, t.conflict, t.source, _now) p;
  end loop;
end $$;
