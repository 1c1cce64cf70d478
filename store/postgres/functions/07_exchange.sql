-- Claims one task for a worker and completes the one that it held, which must be the only task of its lease. This takes
-- one message and two transactions, and has the effect of claim and finish_plain. The lane is free again before the
-- completion is on disk. For most tasks it runs few statements and fewer expressions, because each is prepared again in
-- every transaction. Rare cases are left to claim and finish_lease.
--
-- _likely is the lane that probably has the task, the first of the queue, or 0 if it is not known. Nothing is completed
-- if _held is null. The procedure does not wait for a lane that a user's transaction holds. If there is no task to
-- claim, id is null. If finished is false, the completion was not written, and a call of finish says why. freed has the
-- queues that got tasks because of the completion.
create procedure tusk_fn.exchange(_worker uuid, _token uuid, _queues bigint[], _lock bigint, _likely bigint,
  _held uuid, _held_lane bigint, _firsts uuid[], _ago int[], _stats bytea,
  out lane bigint, out id uuid, out kind text, out args bytea,
  out enqueued_at timestamptz, out attempt int, out crashes int,
  out run_at timestamptz, out expires_at timestamptz, out claimed_at timestamptz,
  out tenant text, out key text, out tags text[], out settings bytea,
  out workflow uuid, out turn boolean, out partition text,
  out finished boolean, out freed text[])
language plpgsql as $$
#variable_conflict use_column
declare
  _ready   boolean; -- there are no late rows to look for
  _no      bigint;
  _done    pg_snapshot;
  _win     pg_snapshot;
  _claimed bigint;
  _look    pg_snapshot; -- a window that has no late rows left reaches up to here
  _from    xid8;
  _n       bigint;
  _row     bigint;  -- the number of the task's row
  _packed  bytea[]; -- not null if the row is a pack
  _place   int;
  _lo      xid8;
  _hi      xid8;
  _beside  boolean; -- finished or open_need may have rows
  _by      uuid;
  _since   timestamptz;
begin
  if pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true) is not null and _likely <> 0 and
    set_config('lock_timeout', '1s', true) is not null and pg_advisory_xact_lock(_lock) is not null
    and (pg_try_advisory_xact_lock(_likely # ('tusk.log'::regclass::oid::bigint << 31)) or tusk_fn.await_lane(_likely))
    and set_config('synchronous_commit', 'off', true) is not null
    and set_config('enable_seqscan', 'off', true) is not null
    and set_config('plan_cache_mode', 'force_generic_plan', true) is not null
    and current_setting('transaction_isolation') = 'read committed' then
    select q.no, q.done, q.win, q.claimed,
      case when pg_snapshot_xmin(q.win) < pg_snapshot_xmax(q.win) then q.win else pg_current_snapshot() end,
      greatest(q.at_xid, pg_snapshot_xmax(q.done)),
      case when q.at_xid >= pg_snapshot_xmax(q.done) then q.at_n else -1 end,
      pg_snapshot_xmin(q.done) = pg_snapshot_xmax(q.done) or q.at_xid >= pg_snapshot_xmax(q.done)
    into _no, _done, _win, _claimed, _look, _from, _n, _ready
    from tusk.lane_position q
    where q.lane = _likely
      and exists (select from tusk.worker w where w.id = _worker and not w.dead)
      and not exists (select from tusk.lease l where l.token = _token)
      and not exists (select from tusk.lane x where x.id >= _queues[1] and x.id < _likely)
    order by q.no desc limit 1;
  end if;
  if _ready then
    select r.lane, r.xid, r.n, r.packed, r.id, r.kind, r.args, r.enqueued_at, r.attempt + 1, r.crashes, r.run_at,
      r.expires_at, clock_timestamp(), r.tenant, r.key, r.tags, r.settings, r.workflow, r.turn, r.partition
    into lane, _lo, _row, _packed, id, kind, args, enqueued_at, attempt, crashes, run_at, expires_at, claimed_at,
      tenant, key, tags, settings, workflow, turn, partition
    from tusk_fn.rows_after(_likely, _look, _from, _n, 1) r;
  end if;
  if _packed is not null then
    _place := case when _lo = _from then greatest(_n - _row, 0) else 0 end;
    id := tusk_fn.id_after(id, _place); args := _packed[_place + 1]; _row := _row + _place + 1;
  end if;
  if id is not null then
    insert into tusk.lease (token, lane, worker, claimed_at, lo, hi, firsts)
      values (_token, lane, _worker, claimed_at, _lo, _lo, array[id]);
    insert into tusk.lane_position (lane, no, done, win, at_xid, at_n, claimed)
    values (lane, _no + 1, case when pg_visible_in_snapshot(_lo, _win) is not false then _done else _win end,
      case when pg_visible_in_snapshot(_lo, _win) then _win else _look end, _lo, _row, _claimed + 1);
  else
    select c.lane, c.ids[1], c.kinds[1], coalesce(c.args[1], (array_agg(c.args[1]) over ())[2]), c.enqueued_at[1],
      coalesce(c.attempts[1], 1), coalesce(c.crashes[1], 0), c.run_at[1], c.expires_at[1], c.claimed_at, c.tenants[1],
      c.keys[1], case when json_typeof(c.tags[1]::json -> 0) = 'array' -- damaged, which the reader reports
        then array[array(select json_array_elements_text(c.tags[1]::json))]
        else array(select json_array_elements_text(c.tags[1]::json)) end, c.settings[1], c.workflows[1], c.turns[1],
      c.partitions[1]
    into lane, id, kind, args, enqueued_at, attempt, crashes, run_at, expires_at, claimed_at, tenant, key, tags,
      settings, workflow, turn, partition
    from tusk_fn.claim(_worker, _token, _queues, 1, _lock, false, false,
      case when _likely <> 0 and tusk_fn.try_lane(_likely) then _likely else 0 end) c;
  end if;
  if _held is null then
    return;
  end if;
  commit;
  _beside := pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true) is not null
    and set_config('enable_seqscan', 'off', true) is not null and set_config('lock_timeout', '1s', true) is not null
    and pg_catalog.pg_sequence_last_value('tusk.beside') is not null;
  if _beside then -- skips a lease of which an open transaction has finished the task
    delete from tusk.lease y
    where y.ctid = (
      select x.ctid from tusk.lease x
      where x.token = _held and x.lane = _held_lane and x.open is null and x.firsts = _firsts and x.counts is null
      for update skip locked)
    returning y.lo, y.hi, y.worker, y.claimed_at into _lo, _hi, _by, _since;
  else
    delete from tusk.lease y
    where y.token = _held and y.lane = _held_lane and y.open is null and y.firsts = _firsts and y.counts is null
    returning y.lo, y.hi, y.worker, y.claimed_at into _lo, _hi, _by, _since;
  end if;
  if found then
    insert into tusk.outcome (lane, node, lo, token, worker, claimed_at, finished_at, keyed, stats, firsts, ago)
    values (_held_lane, case when _lo = _hi then _lo::text::bigint * 2 + 1 else tusk_fn.node_of(_lo, _hi) end, _lo,
      _held, _by, _since, clock_timestamp(), 0, _stats, _firsts, _ago);
    if _beside then
      finished := not exists (select from tusk.finished f where f.token = _held)
        and not exists (select from tusk.open_need d where d.parent = _firsts[1]);
    else
      finished := pg_sequence_last_value('tusk.beside') is null;
    end if;
  end if;
  if finished then
    return;
  end if;
  rollback;
  finished := pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true) is null;
  select count(f.token) = 0, array_agg(f.queue) filter (where f.queue is not null) into finished, freed
  from tusk_fn.finish_lease(_held, _held_lane, 0, _firsts, null, 1, _ago, _stats, '{}') f;
end $$;

-- Stores a task that may run at once. Leases it to a worker, unless somebody claims from the lane at the moment, a lane
-- of a better priority exists, or anything in the lane is unclaimed; then claimed_at is null. It waits for no lock. It
-- commits to the disk, because the task has to be stored.
--
-- The new position says that the task is claimed, as is everything that was visible before. Transactions that were in
-- progress before count as late, and so do those that have begun since. If there are very many, it gives up the lease.
-- If the task has a key, the transaction has an id already, and later ones may have ended.
create function tusk_fn.add_leased(_lane bigint, _id uuid, _kind text, _args bytea, _tenant text, _tags text,
  _settings bytea, _key text, _worker uuid, _token uuid, out enqueued_at timestamptz, out claimed_at timestamptz)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
#variable_conflict use_column
declare
  _no      bigint;
  _claimed bigint;
  _here    pg_snapshot;
  _xid     xid8;
  _next    text;
  _open    text[] := '{}'; -- transactions that count as late, in order
begin
  if current_setting('transaction_isolation') = 'read committed'
    and pg_try_advisory_xact_lock(('x' || translate(left(_token::text, 18), '-', ''))::bit(64)::bigint) -- as claims do
    and pg_try_advisory_xact_lock(_lane # ('tusk.log'::regclass::oid::bigint << 31)) then
    select q.no, q.claimed, pg_current_snapshot()
    into _no, _claimed, _here
    from (select * from tusk.lane_position y where y.lane = _lane order by y.no desc limit 1) q
    where q.win is null
      and not exists (select from tusk.lane x where x.id >= _lane & (-65536)::bigint and x.id < _lane)
      and exists (select from tusk.worker w where w.id = _worker and not w.dead)
      and not exists (select from tusk.log t where t.lane = _lane and t.xid >= pg_snapshot_xmax(q.done))
      and not exists (
        select from pg_snapshot_xip(q.done) late(xid)
        cross join lateral (select from tusk.log t where t.lane = _lane and t.xid = late.xid offset 0) t);
  end if;
  insert into tusk.log as t (lane, id, kind, args, tenant, tags, settings, key)
  values (_lane, _id, _kind, _args, _tenant, _tags::text[], _settings, _key)
  returning t.xid, t.enqueued_at into _xid, enqueued_at;
  if _no is null or _xid::text::bigint - pg_snapshot_xmax(_here)::text::bigint > 1000 then
    return;
  end if;
  _next := greatest(_xid::text::bigint + 1, pg_snapshot_xmax(_here)::text::bigint)::text;
  if pg_snapshot_xmin(_here) <> _xid or pg_snapshot_xmax(_here) > _xid then
    _open := array(
      select x::text from pg_snapshot_xip(_here) x
      union all
      select x::text from generate_series(pg_snapshot_xmax(_here)::text::bigint, _xid::text::bigint - 1) x);
  end if;
  insert into tusk.lane_position (lane, no, done, at_xid, at_n, claimed)
  values (_lane, _no + 1,
    (coalesce(_open[1], _next) || ':' || _next || ':' || array_to_string(_open, ','))::pg_snapshot,
    '0', 0, _claimed + 1);
  insert into tusk.lease as l (token, lane, worker, claimed_at, lo, hi, firsts)
  values (_token, _lane, _worker, clock_timestamp(), _xid, _xid, array[_id])
  returning l.claimed_at into claimed_at;
end $$;
