-- Ends one attempt in another way than by plain completion. The caller has
-- judged that its lease is open and closes it.
create function tusk_fn.end_attempt(l tusk.lease, e tusk_fn.odd_end, _ended timestamptz, _now timestamptz) returns void
language plpgsql as $$
#variable_conflict use_column
declare
  t       tusk_fn.task;
  w       tusk.waiting;
  _queue  bigint := l.lane >> 16;
  _to     smallint := e.state;
  _why    text := e.reason;
begin
  select * into t from (select * from tusk_fn.rows_of(e.id, l.lo, l.hi) offset 0) y where y.lane = l.lane
    order by y.xid desc limit 1;
  if e.state not in (6, 7, 8) then
    if t.key is not null then
      perform 1 from tusk.key y where y.queue = _queue and y.key = tusk_fn.tenant_key(t.tenant, t.key) for update;
      if exists (select from tusk.key y where y.queue = _queue and y.key = tusk_fn.tenant_key(t.tenant, t.key)
        and y.awaiting is not null) then
        _to := 7; _why := 'superseded';
      end if;
    end if;
    if _to <> 7 then
      select 7, y.reason into _to, _why from tusk.stop y where y.id = e.id and y.token = l.token;
      _to := coalesce(_to, e.state);
    end if;
    if _to = 7 then
      insert into tusk.stat (at, stats) select date_trunc('minute', _ended, 'UTC'),
        tusk_fn.cancelled_stat(tusk_fn.queue_of(l.lane), t.kind);
    end if;
  end if;
  delete from tusk.attempt y where y.id = e.id and y.error = '';
  insert into tusk.attempt (id, number, worker, started_at, ended_at, state, error, trace, fingerprint)
  values (e.id, t.attempt + 1, l.worker, l.claimed_at, _ended, _to, e.error, e.trace, e.fingerprint);
  if e.error <> '' then
    insert into tusk.failure as f (queue, kind, fingerprint, count, first_at, last_at, sample, sample_task)
    values (_queue, t.kind, e.fingerprint, 1, _ended, _ended, e.error, e.id)
    on conflict (queue, kind, fingerprint) do update
    set count = f.count + 1, first_at = least(f.first_at, excluded.first_at),
      last_at = greatest(f.last_at, excluded.last_at),
      sample = case when excluded.last_at >= f.last_at then excluded.sample else f.sample end,
      sample_task = case when excluded.last_at >= f.last_at then excluded.sample_task else f.sample_task end;
    t.failure := e.fingerprint;
  end if;
  if _to in (6, 7, 8) then
    insert into tusk.dead (id, state, lane, run_at, enqueued_at, attempt, crashes, kind, args, expires_at, claimed_at,
      tenant, key, tags, settings, failure, reason, finished_at, workflow, turn, partition)
    values (e.id, _to, l.lane, coalesce(t.run_at, t.enqueued_at), t.enqueued_at, e.attempt, e.crashes, t.kind, t.args,
      t.expires_at, l.claimed_at, t.tenant, t.key, t.tags, t.settings, t.failure, _why, _ended, t.workflow, t.turn,
      t.partition);
    if t.key is not null then
      perform tusk_fn.free_key(_queue, tusk_fn.tenant_key(t.tenant, t.key), e.id, _now);
    end if;
    return;
  end if;
  w.id := e.id; w.state := _to; w.lane := l.lane; w.n := nextval('tusk.task_n');
  w.run_at := _now + case when _to in (2, 3) then 0 else greatest(e.delay, 0) end * interval '1 us';
  w.enqueued_at := t.enqueued_at; w.attempt := e.attempt; w.crashes := e.crashes; w.kind := t.kind; w.args := t.args;
  w.expires_at := t.expires_at; w.claimed_at := l.claimed_at; w.tenant := t.tenant; w.key := t.key; w.tags := t.tags;
  w.settings := t.settings; w.failure := t.failure; w.workflow := t.workflow; w.turn := t.turn;
  w.partition := t.partition;
  if _to = 3 then
    perform tusk_fn.place(w);
  else
    insert into tusk.waiting select w.*;
  end if;
end $$;

-- The statistics of one attempt that was sent to be tried again and cancelled, because
-- a newer task of its key takes over or somebody asked for it: counted here.
create function tusk_fn.cancelled_stat(_queue text, _kind text) returns bytea language sql immutable as $$
  select convert_to(json_build_array(json_build_object('queue', _queue, 'kind', _kind, 'cancelled', 1))::text, 'UTF8')
$$;

-- Stores what handlers recorded in attempts whose end was just accepted, in the same
-- transaction: what is refused leaves nothing behind. Never true.
create function tusk_fn.add_notes(_ids uuid[], _progress text[], _outputs bytea[], _logs text[]) returns boolean
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
begin
  insert into tusk.note as o (id, progress, output, logs)
  select x.id, x.progress::jsonb, x.output, x.logs::jsonb
  from unnest(_ids, _progress, _outputs, _logs) x(id, progress, output, logs)
  order by x.id
  on conflict (id) do update
  set progress = coalesce(excluded.progress, o.progress), output = coalesce(excluded.output, o.output),
    logs = case when excluded.logs is null then o.logs else coalesce(o.logs, '[]') || excluded.logs end;
  return false;
end $$;

-- The same for who must not wait for a user's transaction.
create function tusk_fn.add_free_notes(_ids uuid[], _progress text[], _outputs bytea[], _logs text[]) returns boolean
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off set lock_timeout = '20ms' as $$
begin
  return tusk_fn.add_notes(_ids, _progress, _outputs, _logs);
end $$;

-- Stores what handlers recorded, where their leases are open: once the rows of the notes
-- are locked, that is looked at again. Where one has ended meanwhile nothing is stored, and
-- the notes are tried one by one.
create function tusk_fn.write_notes(_ids uuid[], _tokens uuid[], _progress text[], _outputs bytea[], _logs text[])
returns void language plpgsql as $$
declare
  _written uuid[];
begin
  with written as (
    insert into tusk.note as o (id, progress, output, logs)
    select x.id, x.progress::jsonb, x.output, x.logs::jsonb
    from unnest(_ids, _tokens, _progress, _outputs, _logs) x(id, token, progress, output, logs)
    where exists (select from tusk_fn.running r where r.token = x.token and r.id = x.id)
    on conflict (id) do update
    set progress = coalesce(excluded.progress, o.progress), output = coalesce(excluded.output, o.output),
      logs = case when excluded.logs is null then o.logs else coalesce(o.logs, '[]') || excluded.logs end
    returning o.id)
  select array_agg(w.id) into _written from written w;
  if exists (
    select from unnest(_ids, _tokens) x(id, token)
    where x.id = any(_written) and not exists (select from tusk_fn.running r where r.token = x.token
      and r.id = x.id)) then
    raise lock_not_available using message = 'an attempt ended while its note was written';
  end if;
end $$;

-- The same for who must not wait for a user's transaction, which may hold the note of a
-- task that it ends. Returns the places of notes that are held and not stored.
create function tusk_fn.write_free_notes(_ids uuid[], _tokens uuid[], _progress text[], _outputs bytea[],
  _logs text[]) returns int[]
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off set lock_timeout = '20ms' as $$
declare
  _held  int[] := '{}';
  _begun timestamptz := clock_timestamp();
begin
  begin
    perform tusk_fn.write_notes(_ids, _tokens, _progress, _outputs, _logs);
    return _held;
  exception when lock_not_available then
  end;
  for i in 1 .. cardinality(_ids) loop
    begin
      if clock_timestamp() - _begun > interval '300 ms' then
        _held := _held || i; -- it was not tried
        continue;
      end if;
      perform tusk_fn.write_notes(_ids[i:i], _tokens[i:i], _progress[i:i], _outputs[i:i], _logs[i:i]);
    exception when lock_not_available then
      _held := _held || i;
    end;
  end loop;
  return _held;
end $$;

-- The common flush: plain completions of one lease without keys, in runs as it was
-- claimed, which is closed as a whole. Where anything was ever put beside leases, and
-- for anything else, it is left to finish_lease.
-- In the model (docs/design/model.md): FinishPlain, FinishLookAgain.
create function tusk_fn.finish_plain(_token uuid, _lane bigint, _firsts uuid[], _counts int[], _tasks int, _ago int[],
  _stats bytea)
returns table (token uuid, id uuid, held boolean, queue text)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off set lock_timeout = '1s'
as $$
#variable_conflict use_column
declare
  _lo      xid8;
  _hi      xid8;
  _worker  uuid;
  _claimed timestamptz;
begin
  if pg_sequence_last_value('tusk.beside') is null and current_setting('transaction_isolation') = 'read committed' then
    delete from tusk.lease y
    where y.token = _token and y.lane = _lane and y.open is null and y.firsts = _firsts and y.counts is not distinct
      from _counts
    returning y.lo, y.hi, y.worker, y.claimed_at into _lo, _hi, _worker, _claimed;
  end if;
  if _lo is null then
    return query
    select * from tusk_fn.finish_lease(_token, _lane, 0, _firsts, _counts, _tasks, _ago, _stats, '{}');
    return;
  end if;
  insert into tusk.outcome (lane, node, lo, token, worker, claimed_at, finished_at, keyed, stats, firsts, counts, ago)
  values (_lane, case when _lo = _hi then _lo::text::bigint * 2 + 1 else tusk_fn.node_of(_lo, _hi) end, _lo, _token,
    _worker, _claimed, clock_timestamp(), 0, _stats, _firsts, _counts, _ago);
  if pg_sequence_last_value('tusk.beside') is not null then
    perform tusk_fn.begin_anew(); -- now something is
  end if;
end $$;

-- The same, with keys, all of which have an id, and where something may be beside the
-- lease. Only tables that have pages are asked: a relation's size is the cheapest thing
-- to know of it.
create function tusk_fn.finish_lease(_token uuid, _lane bigint, _keyed int, _firsts uuid[], _counts int[], _tasks int,
  _ago int[], _stats bytea, _keys tusk_fn.end_key[])
returns table (token uuid, id uuid, held boolean, queue text)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off set lock_timeout = '300ms'
as $$
#variable_conflict use_column
declare
  _now     timestamptz := clock_timestamp();
  _held    int[];
  _at      tid;
  _lo      xid8;
  _hi      xid8;
  _worker  uuid;
  _claimed timestamptz;
  k        tusk_fn.end_key;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    perform tusk_fn.need_read_committed();
  end if;
  if cardinality(_keys) > 0 or pg_relation_size('tusk.open_need') > 0 then
    _held := tusk_fn.lock_ends(array[_token], array[_lane], _keys, _firsts, _counts);
    if cardinality(_held) > 0 then
      return query select null::uuid, null::uuid, true, h::text from unnest(_held) h;
      return;
    end if;
  end if;
  -- A lease that an open transaction has finished tasks of cannot be locked so.
  -- What was finished before the lock is judged after it, by a new statement.
  select y.ctid, y.lo, y.hi, y.worker, y.claimed_at into _at, _lo, _hi, _worker, _claimed
  from tusk.lease y
  where y.token = _token and y.lane = _lane and y.open is null and y.firsts = _firsts and y.counts is not distinct
    from _counts
  for update skip locked;
  if _at is null or pg_relation_size('tusk.finished') > 0 and tusk_fn.has_finished(_token) then
    return query
    select * from tusk_fn.finish(row(array[_token], array[_lane], array[0], array[cardinality(_firsts)], array[_keyed],
      _firsts, _counts, array[_tasks], _ago, _stats)::tusk_fn.flush, '{}', _keys);
    return;
  end if;
  delete from tusk.lease y where y.ctid = _at;
  insert into tusk.outcome (lane, node, lo, token, worker, claimed_at, finished_at, keyed, stats, firsts, counts, ago)
  values (_lane, case when _lo = _hi then _lo::text::bigint * 2 + 1 else tusk_fn.node_of(_lo, _hi) end, _lo, _token,
    _worker, _claimed, _now, _keyed, _stats, _firsts, _counts, _ago);
  foreach k in array _keys loop
    perform tusk_fn.free_key(k.queue, k.key, k.id, _now);
  end loop;
  if pg_relation_size('tusk.open_need') > 0 then
    return query select null::uuid, null::uuid, null::boolean, q
    from tusk_fn.tell_ended(array(select i.id from tusk_fn.ids_of(_firsts, _counts) i), '{}') q;
  end if;
end $$;

-- Whether an open transaction has ended attempts of a lease, and was committed.
create function tusk_fn.has_finished(_token uuid) returns boolean language plpgsql as $$
begin
  return exists (select from tusk.finished f where f.token = _token);
end $$;

-- Ends attempts. The ends that are no plain completions come once more in _odd. Among the keys,
-- those with an id are to be freed; those without are touched by the other ends. If anything is
-- lost or held by an open transaction, nothing is written and those are returned: the caller goes
-- on without them. A key that is held is returned without an id, its place as the queue. Otherwise
-- it returns the queues of what was set free. It waits for nobody longer than its lock_timeout,
-- which is an error.
create function tusk_fn.finish(f tusk_fn.flush, _odd tusk_fn.odd_end[], _keys tusk_fn.end_key[],
  _in_order boolean default false)
returns table (token uuid, id uuid, held boolean, queue text)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
  set lock_timeout = '300ms'
as $$
#variable_conflict use_column
declare
  _now   timestamptz := clock_timestamp();
  _held  int[];
  _locked tid[];
  _full  tid[];
  _whole int[];
  _part  int[];
  _open  varbit[]; -- of those of _part that are judged by runs
  _ids   uuid[];
  _bad   int := 0;
  _many  int := 0; -- tasks that have to be locked one by one
  _odds  int[] := array(select x.g from unnest(_odd) x); -- their groups
  _apart uuid[] := array(select x.id from unnest(_odd) x);
  l      tusk.lease;
  o      tusk_fn.odd_end;
  k      tusk_fn.end_key;
  g      int;
  i      int;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    perform tusk_fn.need_read_committed();
  end if;
  if not _in_order and (cardinality(f.tokens) > 1 or cardinality(_keys) > 0
    or pg_relation_size('tusk.open_need') > 0) then
    _held := tusk_fn.lock_ends(f.tokens, f.lanes, _keys, f.firsts, f.counts);
    if cardinality(_held) > 0 then
      return query select null::uuid, null::uuid, true, h::text from unnest(_held) h;
      return;
    end if;
  end if;
  -- A lease that an open transaction has finished tasks of cannot be locked so.
  _locked := array(select x.ctid from tusk.lease x where x.token = any(f.tokens) for update skip locked);
  select array_agg(x.ctid), array_agg(s.g::int) into _full, _whole
  from unnest(f.tokens, f.lanes, f.offs, f.sizes) with ordinality s(token, lane, off, size, g)
  join tusk.lease x on x.token = s.token and x.lane = s.lane
  where x.token = any(f.tokens) and x.open is null and x.firsts = f.firsts[s.off + 1 : s.off + s.size]
    and x.ctid = any(_locked)
    and (x.counts = f.counts[s.off + 1 : s.off + s.size] or x.counts is null
      and s.size = f.ends[s.g] - coalesce(f.ends[s.g - 1], 0))
    and not exists (select from tusk.finished y where y.token = x.token);
  if coalesce(cardinality(_whole), 0) < cardinality(f.tokens) then
    _part := array(select s from generate_subscripts(f.tokens, 1) s where s <> all(coalesce(_whole, '{}'))
      order by f.tokens[s], f.lanes[s]);
    if cardinality(f.tokens) = 1 then -- of several all are locked
      perform 1 from tusk.lease x where x.token = f.tokens[1] and x.lane = f.lanes[1] for no key update;
    end if;
    foreach g in array _part loop
      if f.sizes[g] <= 16 or f.sizes[g] * 4 <= f.ends[g] - coalesce(f.ends[g - 1], 0) + 4 then
        _open[g] := tusk_fn.open_after(f.tokens[g], f.lanes[g], f.firsts[f.offs[g] + 1 : f.offs[g] + f.sizes[g]],
          f.counts[f.offs[g] + 1 : f.offs[g] + f.sizes[g]], _locked);
        continue when _open[g] is not null;
      end if;
      _ids := array(select i.id from tusk_fn.ids_of(f.firsts[f.offs[g] + 1 : f.offs[g] + f.sizes[g]],
        f.counts[f.offs[g] + 1 : f.offs[g] + f.sizes[g]]) i);
      if not exists (select from tusk.lease x where x.token = f.tokens[g] and x.lane = f.lanes[g]
        and x.ctid = any(_locked)) then
        _many := _many + cardinality(_ids);
        if _many > 1000 then -- the server's table of locks is bounded, and everybody's
          raise exception 'too many attempts to lock one by one' using errcode = 'lock_not_available';
        end if;
      end if;
      return query select *, null::text from tusk_fn.judge(f.tokens[g], f.lanes[g], _ids, _locked);
      get diagnostics i = row_count;
      _bad := _bad + i;
    end loop;
    if _bad > 0 then
      return;
    end if;
  end if;
  foreach o in array _odd loop
    select * into l from tusk.lease x where x.token = f.tokens[o.g] and x.lane = f.lanes[o.g];
    perform tusk_fn.end_attempt(l, o, greatest(_now - o.ago * interval '1 us', l.claimed_at), _now);
  end loop;
  insert into tusk.outcome (lane, node, lo, token, worker, claimed_at, finished_at, keyed, stats, firsts, counts, ago)
  select s.lane, tusk_fn.node_of(x.lo, x.hi), x.lo, s.token, x.worker, x.claimed_at, _now, f.keyed[s.g],
    case when s.g = 1 then f.stats end,
    case when s.g = any(_odds) then array(select i.id from tusk_fn.ids_of(s.firsts, s.counts) i
      where i.id <> all(_apart) order by i.place)
      else s.firsts end,
    case when s.g <> all(_odds) then s.counts end,
    case when f.ago is null then null
      when s.g = any(_odds) then array(
        select f.ago[s.before + i.place] from tusk_fn.ids_of(s.firsts, s.counts) i where i.id <> all(_apart)
          order by i.place)
      else f.ago[s.before + 1 : f.ends[s.g]] end
  from (
    select u.token, u.lane, u.g, coalesce(f.ends[u.g - 1], 0) as before,
      f.firsts[u.off + 1 : u.off + u.size] as firsts, f.counts[u.off + 1 : u.off + u.size] as counts
    from unnest(f.tokens, f.lanes, f.offs, f.sizes) with ordinality u(token, lane, off, size, g)) s
  join tusk.lease x on x.token = s.token and x.lane = s.lane
  where x.token = any(f.tokens);
  delete from tusk.lease x where x.ctid = any(_full);
  foreach g in array coalesce(_part, '{}') loop
    if _open[g] is null then
      _ids := array(select i.id from tusk_fn.ids_of(f.firsts[f.offs[g] + 1 : f.offs[g] + f.sizes[g]],
        f.counts[f.offs[g] + 1 : f.offs[g] + f.sizes[g]]) i);
      perform tusk_fn.close(f.tokens[g], f.lanes[g], _ids, _locked);
    elsif bit_count(_open[g]) = 0 then
      delete from tusk.lease x where x.token = f.tokens[g] and x.lane = f.lanes[g];
    else
      update tusk.lease x set open = _open[g] where x.token = f.tokens[g] and x.lane = f.lanes[g];
    end if;
  end loop;
  foreach k in array _keys loop
    if k.id is not null then
      perform tusk_fn.free_key(k.queue, k.key, k.id, _now);
    end if;
  end loop;
  if pg_relation_size('tusk.open_need') > 0 then
    return query select null::uuid, null::uuid, null::boolean, q
    from tusk_fn.tell_ended(array(select i.id from tusk_fn.ids_of(f.firsts, f.counts) i), _apart) q;
  end if;
end $$;

-- What is still open in a lease, which is locked, without runs that all are. Null:
-- they are not, or that takes a closer look. To find each of thousands of tasks by
-- itself takes many times as long.
create function tusk_fn.open_after(_token uuid, _lane bigint, _firsts uuid[], _counts int[], _locked tid[])
  returns varbit
language plpgsql as $$
#variable_conflict use_column
declare
  l       tusk.lease;
  _places int[];
  _open   varbit;
  _many   int;
begin
  select * into l from tusk.lease x where x.token = _token and x.lane = _lane and x.ctid = any(_locked);
  if not found or exists (select from tusk.finished f where f.token = _token) then
    return null;
  end if;
  _places := case when l.counts is null and _counts is null then array(
    select array_position(l.firsts, u.first) from unnest(_firsts) with ordinality u(first, no) order by u.no)
  else array(
    select r.upto - r.count + 1 + tusk_fn.ids_between(r.first, u.first)
    from (
      select y.first, coalesce(y.count, 1) as count, y.no, tusk_fn.block_of(y.first) as block
      from unnest(_firsts, _counts) with ordinality y(first, count, no) offset 0) u
    left join (
      select y.first, coalesce(y.count, 1) as count, (sum(coalesce(y.count, 1)) over (order by y.no))::int as upto
      from unnest(l.firsts, l.counts) with ordinality y(first, count, no) offset 0) r
      on r.first between u.block and u.first and tusk_fn.ids_between(r.first, u.first) + u.count <= r.count
    order by u.no) end;
  if array_position(_places, null) is not null then
    return null;
  end if;
  _open := coalesce(l.open, repeat('1', coalesce((select sum(c) from unnest(l.counts) c),
    cardinality(l.firsts))::int)::varbit);
  for i in 1 .. cardinality(_places) loop
    _many := coalesce(_counts[i], 1);
    if substring(_open from _places[i] for _many) <> repeat('1', _many)::varbit then
      return null;
    end if;
    _open := overlay(_open placing repeat('0', _many)::varbit from _places[i]);
  end loop;
  return _open;
end $$;

-- Returns the tasks of a group that cannot be finished: those that are no longer open
-- in the lease, and those that an open transaction is about to finish. The locks come
-- first. What is open is judged after them, in a statement of its own: a transaction
-- that committed before its task was locked is seen. A lease may have thousands of
-- tasks, so it is taken apart once, and never in a loop.
-- In the model (docs/design/model.md): FinishTry, FinishOpen.
create function tusk_fn.judge(_token uuid, _lane bigint, _ids uuid[], _locked tid[])
  returns table (token uuid, id uuid, held boolean)
language plpgsql set enable_nestloop = off set jit = off as $$
#variable_conflict use_column
declare
  _held uuid[] := '{}';
  _open uuid[];
begin
  if not exists (select from tusk.lease x where x.token = _token and x.lane = _lane and x.ctid = any(_locked)) then
    _held := array(select u.id from unnest(_ids) u(id) where not tusk_fn.try_finish(_token, u.id));
  end if;
  _open := tusk_fn.open_in(_token, _lane);
  return query
  select _token, u.id, false from unnest(_ids) u(id) left join unnest(_open) o(id) on o.id = u.id where o.id is null;
  return query
  select _token, u.id, true from unnest(_held) u(id) join unnest(_open) o(id) on o.id = u.id;
end $$;

-- The tasks that are open in a lease, in the order of their places.
create function tusk_fn.open_in(_token uuid, _lane bigint) returns uuid[] language plpgsql as $$
#variable_conflict use_column
declare
  l         tusk.lease;
  _finished uuid[];
begin
  select * into l from tusk.lease x where x.token = _token and x.lane = _lane;
  _finished := array(select f.id from tusk.finished f where f.token = _token);
  if l.open is null and _finished = '{}' then
    return array(select i.id from tusk_fn.ids_of(l.firsts, l.counts) i order by i.place);
  end if;
  return array(
    select u.id from tusk_fn.ids_of(l.firsts, l.counts) u
    where (l.open is null or get_bit(l.open, u.place::int - 1) = 1) and u.id <> all(_finished)
    order by u.place);
end $$;

-- The lock under which a task is finished while its lease is not held alone.
create function tusk_fn.try_finish(_token uuid, _id uuid) returns boolean language sql volatile as $$
  select pg_try_advisory_xact_lock(hashtextextended(_token::text || _id::text, 0))
$$;

-- Closes some tasks of a lease, and with the last one the lease. A plan that is forbidden and
-- taken all the same, as that of ids_of, counts as dear enough to be compiled for a second.
create function tusk_fn.close(_token uuid, _lane bigint, _ids uuid[], _locked tid[]) returns void
language plpgsql set enable_nestloop = off set jit = off as $$
#variable_conflict use_column
declare
  l     tusk.lease;
  _at   tid;
  _open uuid[] := tusk_fn.open_in(_token, _lane);
  _mask varbit;
begin
  select * into l from tusk.lease x where x.token = _token and x.lane = _lane;
  select x.ctid into _at from tusk.lease x where x.token = _token and x.lane = _lane;
  select string_agg(case when o.id is not null and s.id is null then '1' else '0' end, '' order by u.place)::varbit
  into _mask
  from tusk_fn.ids_of(l.firsts, l.counts) u
  left join unnest(_open) o(id) on o.id = u.id
  left join unnest(_ids) s(id) on s.id = u.id;
  if bit_count(_mask) = 0 and _at = any(_locked) then
    delete from tusk.lease x where x.ctid = _at;
  else
    update tusk.lease x set open = _mask where x.ctid = _at;
  end if;
  delete from tusk.finished f
  using tusk_fn.ids_of(l.firsts, l.counts) u
  where f.token = _token and f.id = u.id and get_bit(_mask, u.place::int - 1) = 0;
end $$;

-- Ends one attempt inside its user's transaction, which may stay open for long:
-- the lease is only shared. Returns false when the attempt is lost.
-- In the model (docs/design/model.md): TxBeside to TxCommit.
create function tusk_fn.finish_tx(_token uuid, _lane bigint, e tusk_fn.odd_end, _stats bytea, _key text,
  _plain boolean)
returns boolean language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
  l      tusk.lease;
  _now   timestamptz := clock_timestamp();
  _ended timestamptz;
begin
  perform tusk_fn.need_read_committed();
  -- Before the lease is held: a flush that finds no value there does not wait for it, but
  -- for the very first.
  perform nextval('tusk.beside');
  perform 1 from tusk.lease x where x.token = _token and x.lane = _lane for key share;
  if not found then
    return false;
  end if;
  if not tusk_fn.try_finish(_token, e.id) then
    return false;
  end if;
  -- A statement of its own: it sees what the lock's last holder committed.
  if not exists (select from tusk_fn.running r where r.token = _token and r.lane = _lane and r.id = e.id) then
    return false;
  end if;
  insert into tusk.finished (token, id) values (_token, e.id);
  select * into l from tusk.lease x where x.token = _token and x.lane = _lane;
  _ended := greatest(_now - e.ago * interval '1 us', l.claimed_at);
  if not _plain then
    perform tusk_fn.end_attempt(l, e, _ended, _now);
  end if;
  insert into tusk.outcome (lane, node, lo, token, worker, claimed_at, finished_at, keyed, stats, firsts, ago)
  values (_lane, tusk_fn.node_of(l.lo, l.hi), l.lo, _token, l.worker, l.claimed_at, _now, (_key <> '')::int, _stats,
    case when _plain then array[e.id] else '{}' end, array[least(e.ago / 1000, 2000000000)::int]);
  if _plain and _key <> '' then
    perform tusk_fn.free_key(_lane >> 16, _key, e.id, _now);
  end if;
  return true;
end $$;
