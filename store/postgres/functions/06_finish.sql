-- Ends one attempt other than by a plain completion. The caller has found its lease to be open, and closes it. Returns
-- the name to ring.
create function tusk_fn.end_attempt(l tusk.lease, e tusk_fn.odd_end, _ended timestamptz, _now timestamptz) returns text
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
      if (select y.awaiting from tusk.key y where y.queue = _queue and y.key = tusk_fn.tenant_key(t.tenant, t.key)
        for update) is not null then
        _to := 7; _why := 'superseded';
      end if;
    end if;
    if _to <> 7 then
      select 7, y.reason into _to, _why from tusk.stop y where y.id = e.id and y.token = l.token;
      _to := coalesce(_to, e.state);
    end if;
    if _to = 7 then
      -- Instead of being retried, the task is cancelled.
      insert into tusk.stat (at, stats) select date_trunc('minute', _ended, 'UTC'), convert_to(json_build_array(
        json_build_object('queue', tusk_fn.queue_of(l.lane), 'kind', t.kind, 'cancelled', 1))::text, 'UTF8');
    end if;
  elsif _to = 7 then -- the reason of the request takes precedence
    _why := coalesce((select nullif(y.reason, '') from tusk.stop y where y.id = e.id and y.token = l.token), _why);
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
    return case when t.key is not null then
      tusk_fn.free_key(_queue, tusk_fn.tenant_key(t.tenant, t.key), e.id, _now) end;
  end if;
  w.id := e.id; w.state := _to; w.lane := l.lane; w.n := nextval('tusk.task_n');
  w.run_at := _now + case when _to in (2, 3) then 0 else greatest(e.delay, 0) end * interval '1 us';
  w.enqueued_at := t.enqueued_at; w.attempt := e.attempt; w.crashes := e.crashes; w.kind := t.kind; w.args := t.args;
  w.expires_at := t.expires_at; w.claimed_at := l.claimed_at; w.tenant := t.tenant; w.key := t.key; w.tags := t.tags;
  w.settings := t.settings; w.failure := t.failure; w.workflow := t.workflow; w.turn := t.turn;
  w.partition := t.partition;
  if _to = 3 then
    return tusk_fn.place(w);
  end if;
  insert into tusk.waiting select w.*;
  return null;
end $$;

-- The common flush: plain completions of a whole lease, in the runs in which it was claimed. At most one task has a
-- key, no task waits for that key, and nobody has locked it. Everything else is left to finish_lease, and so is every
-- flush once tusk.beside has a value.
-- In the model (docs/design/model.md): FinishPlain, FinishLookAgain.
create function tusk_fn.finish_plain(_token uuid, _lane bigint, _firsts uuid[], _counts int[], _tasks int, _ago int[],
  _stats bytea, _key tusk_fn.end_key default null)
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
  if pg_sequence_last_value('tusk.beside') is not null or current_setting('transaction_isolation') <> 'read committed'
  then
    null;
  elsif _key.id is not null then
    with mine as materialized (
      select from tusk.lease y
      join tusk.key x on x.queue = _key.queue and x.key = _key.key and x.holder = _key.id and x.awaiting is null
      where y.token = _token and y.lane = _lane and y.open is null and y.firsts = _firsts and y.counts is not distinct
        from _counts
      for update skip locked),
    freed as ( -- not found by its ctid: the snapshot may not see the row that is locked now
      update tusk.key x set holder = null, ended = _key.id
      where x.queue = _key.queue and x.key = _key.key and exists (select from mine))
    delete from tusk.lease y where y.token = _token and y.lane = _lane and exists (select from mine)
    returning y.lo, y.hi, y.worker, y.claimed_at into _lo, _hi, _worker, _claimed;
  else
    delete from tusk.lease y
    where y.token = _token and y.lane = _lane and y.open is null and y.firsts = _firsts and y.counts is not distinct
      from _counts
    returning y.lo, y.hi, y.worker, y.claimed_at into _lo, _hi, _worker, _claimed;
  end if;
  if _lo is null then
    return query
    select * from tusk_fn.finish_lease(_token, _lane, (_key.id is not null)::int, _firsts, _counts, _tasks, _ago,
      _stats, case when _key.id is null then '{}' else array[_key] end);
    return;
  end if;
  insert into tusk.outcome (lane, node, lo, token, worker, claimed_at, finished_at, keyed, stats, firsts, counts, ago)
  values (_lane, case when _lo = _hi then _lo::text::bigint * 2 + 1 else tusk_fn.node_of(_lo, _hi) end, _lo, _token,
    _worker, _claimed, clock_timestamp(), (_key.id is not null)::int, _stats, _firsts, _counts, _ago);
  if pg_sequence_last_value('tusk.beside') is not null then
    perform tusk_fn.begin_anew(); -- it got its first value in the meantime
  end if;
end $$;

-- Like finish_plain, with any number of keys, all of which have an id, and also if finished or open_need may have rows.
-- It first checks the size of those tables, which is cheaper than reading them.
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
  -- This does not lock a lease of which an open transaction has finished tasks. What was finished before the lock is
  -- judged in a new statement.
  select y.ctid, y.lo, y.hi, y.worker, y.claimed_at into _at, _lo, _hi, _worker, _claimed
  from tusk.lease y
  where y.token = _token and y.lane = _lane and y.open is null and y.firsts = _firsts and y.counts is not distinct
    from _counts
  for update skip locked;
  if _at is not null and pg_relation_size('tusk.finished') > 0 then
    _at := case when not exists (select from tusk.finished f where f.token = _token) then _at end;
  end if;
  if _at is null then
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
    return query select null::uuid, null::uuid, null::boolean, q
    from tusk_fn.free_key(k.queue, k.key, k.id, _now) q where q is not null;
  end loop;
  if pg_relation_size('tusk.open_need') > 0 then
    return query select null::uuid, null::uuid, null::boolean, q
    from tusk_fn.tell_ended(array(select i.id from tusk_fn.ids_of(_firsts, _counts) i), '{}') q;
  end if;
end $$;

-- Ends attempts. Ends other than plain completions are also listed in _odd. Keys with an id become free, and keys
-- without one belong to the ends in _odd. If an attempt is lost or an open transaction holds it, nothing is written.
-- Such attempts are returned, so that the caller can repeat the call without them. A key that is held is returned
-- without an id, with its place as the queue. If everything was written, the names to ring are returned as queues, for
-- tasks that were set free, were handed back, or waited for a key. The function fails if it would have to wait for
-- longer than its lock_timeout.
create function tusk_fn.finish(f tusk_fn.flush, _odd tusk_fn.odd_end[], _keys tusk_fn.end_key[],
  _in_order boolean default false)
returns table (token uuid, id uuid, held boolean, queue text)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
  set lock_timeout = '300ms'
as $$
#variable_conflict use_column
declare
  _now    timestamptz := clock_timestamp();
  _held   int[];
  _locked tid[]; -- the leases that are locked
  _full   tid[];
  _whole  int[];
  _part   int[];
  _open   varbit[]; -- for the groups of _part that are judged by runs
  _rings  text[];
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
  -- This does not lock leases of which an open transaction has finished tasks.
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
    if cardinality(f.tokens) = 1 then -- several leases were locked above
      perform 1 from tusk.lease x where x.token = f.tokens[1] and x.lane = f.lanes[1] for no key update;
    end if;
    _open := tusk_fn.open_parts(f, _part, _locked);
    return query select j.*, null::text from tusk_fn.judge_parts(f, _part, _open, _locked) j;
    if found then
      return;
    end if;
  end if;
  _rings := tusk_fn.write_ends(f, _odd, _now);
  delete from tusk.lease x where x.ctid = any(_full);
  if _part is not null then
    perform tusk_fn.close_parts(f, _part, _open, _locked);
  end if;
  _rings := _rings || array(
    select tusk_fn.free_key(k.queue, k.key, k.id, _now) from unnest(_keys) with ordinality k
    where k.id is not null order by k.ordinality);
  return query select distinct null::uuid, null::uuid, null::boolean, q from unnest(_rings) q where q is not null;
  if pg_relation_size('tusk.open_need') > 0 then
    return query select null::uuid, null::uuid, null::boolean, q
    from tusk_fn.tell_ended(array(select i.id from tusk_fn.ids_of(f.firsts, f.counts) i),
      array(select x.id from unnest(_odd) x)) q;
  end if;
end $$;

-- Writes how attempts ended: one row for the plain completions of each group, and the others one by one. Returns the
-- names to ring.
create function tusk_fn.write_ends(f tusk_fn.flush, _odd tusk_fn.odd_end[], _now timestamptz) returns text[]
language plpgsql as $$
#variable_conflict use_column
declare
  _odds  int[] := array(select x.g from unnest(_odd) x); -- their groups
  _apart uuid[] := array(select x.id from unnest(_odd) x);
  _rings text[] := '{}';
  l      tusk.lease;
  o      tusk_fn.odd_end;
begin
  foreach o in array _odd loop
    select * into l from tusk.lease x where x.token = f.tokens[o.g] and x.lane = f.lanes[o.g];
    _rings := _rings || tusk_fn.end_attempt(l, o, greatest(_now - o.ago * interval '1 us', l.claimed_at), _now);
  end loop;
  if cardinality(f.tokens) = 1 and cardinality(_odd) = f.ends[1] then -- the common case is simple
    insert into tusk.outcome (lane, node, lo, token, worker, claimed_at, finished_at, keyed, stats, firsts, ago)
    values (l.lane, tusk_fn.node_of(l.lo, l.hi), l.lo, l.token, l.worker, l.claimed_at, _now, f.keyed[1], f.stats, '{}',
      case when f.ago is not null then '{}'::int[] end);
    return _rings;
  end if;
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
  return _rings;
end $$;

-- Ends one attempt within a user's transaction, and stores the tasks and needs that come with the end, if any, as
-- finish_more does. The transaction may stay open for long, so it only shares the lease. done is false if the attempt
-- is lost. queue is the name to ring once the transaction has committed.
-- In the model (docs/design/model.md): TxBeside to TxCommit.
create function tusk_fn.finish_tx(_token uuid, _lane bigint, e tusk_fn.odd_end, _stats bytea, _key text,
  _plain boolean, _tasks tusk_fn.new_task[] default '{}', _needs tusk_fn.new_need[] default '{}',
  _more tusk_fn.extras default null, out done boolean, out queue text)
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
  l      tusk.lease;
  _now   timestamptz := clock_timestamp();
  _ended timestamptz;
begin
  done := false;
  perform tusk_fn.need_read_committed();
  -- This comes before the lock on the lease, because a flush that finds no value in tusk.beside does not read
  -- tusk.finished. A flush that is in progress checks again at its end, and then finds the first value.
  perform nextval('tusk.beside');
  perform 1 from tusk.lease x where x.token = _token and x.lane = _lane for key share;
  if not found or not tusk_fn.try_finish(_token, e.id) then
    return;
  end if;
  -- A separate statement, which sees what the lock's last holder committed.
  if not exists (select from tusk_fn.running r where r.token = _token and r.lane = _lane and r.id = e.id) then
    return;
  end if;
  if cardinality(_tasks) > 0 and cardinality(tusk_fn.called_off(_more.going)) = 0 then
    perform tusk_fn.put_needing(_tasks, _needs);
  end if;
  insert into tusk.finished (token, id) values (_token, e.id);
  select * into l from tusk.lease x where x.token = _token and x.lane = _lane;
  _ended := greatest(_now - e.ago * interval '1 us', l.claimed_at);
  if not _plain then
    queue := tusk_fn.end_attempt(l, e, _ended, _now);
  end if;
  insert into tusk.outcome (lane, node, lo, token, worker, claimed_at, finished_at, keyed, stats, firsts, ago)
  values (_lane, tusk_fn.node_of(l.lo, l.hi), l.lo, _token, l.worker, l.claimed_at, _now, (_key <> '')::int, _stats,
    case when _plain then array[e.id] else '{}' end, array[least(e.ago / 1000, 2000000000)::int]);
  if _plain and _key <> '' then
    queue := tusk_fn.free_key(_lane >> 16, _key, e.id, _now);
  end if;
  if _more is distinct from null then
    perform tusk_fn.yield(_more.yield, _more.keep) where cardinality(_more.yield) > 0;
    select coalesce(queue, min(q)) into queue from tusk_fn.await_needs(_more, _tasks) q;
  end if;
  done := true;
end $$;
