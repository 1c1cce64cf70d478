-- Claims up to _limit tasks for a worker from the lanes of its queues, in order of priority. Every statement that
-- decides something runs after the lock is taken, so it sees what the lock's last holder wrote. A claim that finds
-- nothing writes nothing.
--
-- It waits for at most one lane. If somebody claims from another one at the moment, and nobody changes it, the last row
-- names that lane and has no tasks: the caller should claim again.
--
-- _full asks for all columns at once. _packed says that packs are likely. A caller that has locked one of the lanes
-- passes it as _held, and then the claim waits for no other lane.
-- In the model (docs/design/model.md): ClaimJudge, ClaimTake.
create function tusk_fn.claim(_worker uuid, _token uuid, _queues bigint[], _limit int, _lock bigint, _full boolean,
  _packed boolean, _held bigint default 0)
returns setof tusk_fn.piece language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
  set lock_timeout = '2s'
as $$
declare
  _alive boolean;
  _known boolean; -- a lease has the token
  _lanes bigint[];
  _lane  bigint;
  _first boolean;
  _busy  bigint;  -- a lane that was passed over
  _want  int := _limit;
  r      tusk_fn.piece;
  large  tusk_fn.piece;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    perform tusk_fn.need_read_committed();
  end if;
  -- A request and its repetition are serialized: the second sees what the first did. The result is assigned because
  -- PERFORM would cost ten times as much.
  _first := pg_advisory_xact_lock(_lock) is not null and set_config('synchronous_commit', 'off', true) is not null;
  select exists (select from tusk.worker w where w.id = _worker and not w.dead),
    exists (select from tusk.lease l where l.token = _token),
    case when cardinality(_queues) > 4 then tusk_fn.lanes_with_rows(_queues) else array(
      select l.id
      from unnest(_queues) with ordinality q(id, place)
      cross join lateral (select distinct x.id from tusk.lane x where x.id between q.id and q.id + 65535) l
      order by q.place, l.id) end
  into _alive, _known, _lanes;
  if not _alive then
    raise exception 'the worker is dead' using errcode = 'TK001';
  elsif _known then
    return;
  end if;
  _first := _held in (0, _lanes[1]);
  foreach _lane in array _lanes loop
    if not pg_try_advisory_xact_lock(_lane # ('tusk.log'::regclass::oid::bigint << 31)) then
      if not _first and pg_try_advisory_xact_lock_shared(~(_lane # ('tusk.log'::regclass::oid::bigint << 31))) then
        _busy := _lane;
      end if;
      continue when not _first or not tusk_fn.await_lane(_lane);
      if not exists (select from tusk.worker w where w.id = _worker and not w.dead) then -- declared dead meanwhile
        raise exception 'the worker is dead' using errcode = 'TK001';
      end if;
    end if;
    _first := false;
    foreach r in array tusk_fn.claim_lane(_worker, _token, _lane, _want, _full, _packed) loop
      return next r;
      if r.xids is not null then -- args that next_pieces left out
        large.lane := r.lane; large.tasks := 0;
        for large.ids, large.args in
          select array[u.id], array[t.args]
          from unnest(r.ids, r.args, r.xids) u(id, args, xid)
          join tusk.log t on t.lane = r.lane and t.xid = u.xid and t.id = u.id and t.packed is null
          where u.args is null
        loop
          return next large;
        end loop;
      end if;
      _want := _want - r.tasks;
    end loop;
    exit when _want = 0;
  end loop;
  if _want > 0 and _busy is not null then
    r := null; r.lane := _busy;
    return next r;
  end if;
end $$;

-- Claims tasks from a lane that the caller has locked.
create function tusk_fn.claim_lane(_worker uuid, _token uuid, _lane bigint, _limit int, _full boolean, _packed boolean)
returns tusk_fn.piece[] language plpgsql as $$
declare
  _all    tusk_fn.piece[] := '{}';
  _now    timestamptz := clock_timestamp();
  _here   pg_snapshot := pg_current_snapshot();
  _win    pg_snapshot;
  _open   boolean; -- the lane had a window
  _last   boolean;
  _want   int := _limit;
  _firsts uuid[];
  _counts int[];
  _sort   boolean := false; -- the runs are not sorted
  _lo     xid8;
  _hi     xid8;
  _at     xid8;
  _n      bigint;
  p       tusk.lane_position;
  r       tusk_fn.piece;
begin
  select * into p from tusk.lane_position q where q.lane = _lane order by q.no desc limit 1;
  if not found then
    p := row(_lane, 0, '1:1:', null, '0', 0, 0)::tusk.lane_position;
  end if;
  _open := p.win is not null;
  -- Uses the lane's window first, if it has one. If that has too few tasks left, uses a window that ends now.
  loop
    _win := coalesce(p.win, _here);
    foreach r in array tusk_fn.next_pieces(p, _win, _now, _want, _full, _packed) loop
      _all := _all || r;
      _sort := _sort or coalesce(r.firsts[1] < _firsts[cardinality(_firsts)], false);
      if _counts is not null or r.counts is not null then
        _counts := coalesce(_counts, array_fill(1, array[coalesce(cardinality(_firsts), 0)]))
          || coalesce(r.counts, array_fill(1, array[r.tasks]));
      end if;
      _firsts := _firsts || r.firsts;
      _lo := least(_lo, r.lo); _hi := greatest(_hi, r.hi); -- a late commit has a lower one
      _at := r.hi; _n := r.n;
      _want := _want - r.tasks;
    end loop;
    if _want = 0 then
      p.win := _win; p.at_xid := _at; p.at_n := _n;
      exit;
    end if;
    _last := p.win is null;
    p.done := _win; p.win := null; p.at_xid := '0'; p.at_n := 0;
    exit when _last;
  end loop;
  if _want < _limit then
    if cardinality(_firsts) = _limit - _want then
      _counts := null;
    end if;
    if _sort then
      select array_agg(u.first order by u.first), case when _counts is not null
        then array_agg(u.count order by u.first) end
      into _firsts, _counts
      from unnest(_firsts, _counts) u(first, count);
    end if;
    insert into tusk.lease (token, lane, worker, claimed_at, lo, hi, firsts, counts)
    values (_token, _lane, _worker, _now, _lo, _hi, _firsts, _counts);
  end if;
  -- If it took long, the next claim would have to step over the same invisible rows.
  if _want < _limit or _open or clock_timestamp() - _now > interval '3 ms' then
    insert into tusk.lane_position (lane, no, done, win, at_xid, at_n, claimed)
    values (_lane, p.no + 1, p.done, p.win, p.at_xid, p.at_n, p.claimed + _limit - _want);
  end if;
  return _all;
end $$;

-- The next tasks of a lane that are visible in a window, as arrays: hundreds of rows would cost the server and the
-- worker more. Args too large for an array are left out.
create function tusk_fn.next_pieces(p tusk.lane_position, _win pg_snapshot, _now timestamptz, _want int, _full boolean,
  _packed boolean)
returns tusk_fn.piece[] language plpgsql as $$
declare
  -- A single lower bound: of two bounds, the index scan would use the lesser and read everything claimed before.
  _from  xid8 := greatest(p.at_xid, pg_snapshot_xmax(p.done));
  _n     bigint := case when p.at_xid >= pg_snapshot_xmax(p.done) then p.at_n else -1 end;
  _plain boolean := not _full;
  _packs boolean := _packed;
  _xids  xid8[];
  _ns    bigint[];
  r      tusk_fn.piece;
begin
  if _packs or _full then
    null;
  elsif pg_snapshot_xmin(p.done) = pg_snapshot_xmax(p.done) or p.at_xid >= pg_snapshot_xmax(p.done) then
    -- Nobody was writing when the lane was last claimed, or the lane is past those writers. So there are no late rows.
    -- The search for them is much of the work of a small claim.
    select array_agg(t.id), array_agg(t.kind), array_agg(case when octet_length(t.args) <= 8192 then t.args end),
      array_agg(t.enqueued_at), array_agg(t.xid), array_agg(t.n), array_agg(t.id order by t.id),
      bool_and(t.attempt = 0 and t.crashes = 0 and t.run_at is null and t.expires_at is null and t.tenant is null
        and t.key is null and t.tags is null and t.settings is null and t.workflow is null and t.turn is null
        and t.partition is null),
      bool_or(t.packed is not null)
    into r.ids, r.kinds, r.args, r.enqueued_at, _xids, _ns, r.firsts, _plain, _packs
    from tusk_fn.rows_after(p.lane, _win, _from, _n, _want) t;
  else
    select array_agg(t.id), array_agg(t.kind), array_agg(case when octet_length(t.args) <= 8192 then t.args end),
      array_agg(t.enqueued_at), array_agg(t.xid), array_agg(t.n), array_agg(t.id order by t.id),
      bool_and(t.attempt = 0 and t.crashes = 0 and t.run_at is null and t.expires_at is null and t.tenant is null
        and t.key is null and t.tags is null and t.settings is null and t.workflow is null and t.turn is null
        and t.partition is null),
      bool_or(t.packed is not null)
    into r.ids, r.kinds, r.args, r.enqueued_at, _xids, _ns, r.firsts, _plain, _packs
    from tusk_fn.rows_next(p.lane, p.done, _win, p.at_xid, p.at_n, _from, _n, _want) t;
  end if;
  if not _plain and not _packs then
    select array_agg(t.id), array_agg(t.kind), array_agg(case when octet_length(t.args) <= 8192 then t.args end),
      array_agg(t.enqueued_at), array_agg(t.xid), array_agg(t.n), array_agg(t.id order by t.id),
      array_agg(t.attempt + 1), array_agg(t.crashes), array_agg(t.run_at), array_agg(t.expires_at),
      array_agg(t.tenant), array_agg(t.key), array_agg(to_json(t.tags)::text), array_agg(t.settings),
      array_agg(t.workflow), array_agg(t.turn), array_agg(t.partition), bool_or(t.packed is not null)
    into r.ids, r.kinds, r.args, r.enqueued_at, _xids, _ns, r.firsts, r.attempts, r.crashes, r.run_at, r.expires_at,
      r.tenants, r.keys, r.tags, r.settings, r.workflows, r.turns, r.partitions, _packs
    from tusk_fn.rows_next(p.lane, p.done, _win, p.at_xid, p.at_n, _from, _n, _want) t;
  end if;
  if _packs then
    return tusk_fn.next_packs(p, _win, _now, _want, _from, _n);
  elsif _xids is null then
    return '{}';
  end if;
  r.lane := p.lane; r.claimed_at := _now; r.tasks := cardinality(_xids);
  r.lo := _xids[1]; r.hi := _xids[r.tasks]; r.n := _ns[r.tasks];
  if array_position(r.args, null) is not null then
    r.xids := _xids;
  end if;
  return array[r];
end $$;

-- Like next_pieces, where some rows are packs. It returns one piece for each row, and reads one row at a time, because
-- each may be enough.
create function tusk_fn.next_packs(p tusk.lane_position, _win pg_snapshot, _now timestamptz, _want int, _from xid8,
  _n bigint)
returns tusk_fn.piece[] language plpgsql as $$
declare
  _all   tusk_fn.piece[] := '{}';
  _left  int := _want;
  _skip  int; -- tasks of a pack that were claimed before
  r      tusk_fn.piece;
  _rows  cursor for select x.* from tusk_fn.rows_next(p.lane, p.done, _win, p.at_xid, p.at_n, _from, _n, _want) x;
begin
  for t in _rows loop
    _skip := case when t.packed is not null and t.xid = p.at_xid then greatest(p.at_n - t.n, 0) else 0 end;
    r := null;
    r.lane := p.lane; r.claimed_at := _now;
    r.tasks := least(coalesce(cardinality(t.packed), 1) - _skip, _left);
    r.ids := array[case when _skip = 0 then t.id else tusk_fn.id_after(t.id, _skip) end];
    r.args := case when t.packed is not null then t.packed[_skip + 1 : _skip + r.tasks]
      else array[case when octet_length(t.args) <= 8192 then t.args end] end;
    r.xids := case when r.args[1] is null then array[t.xid] end;
    r.kinds := array[t.kind]; r.enqueued_at := array[t.enqueued_at];
    if t.packed is null or t.expires_at is not null or t.tags is not null or t.settings is not null then
      r.attempts := array[t.attempt + 1]; r.crashes := array[t.crashes]; r.run_at := array[t.run_at];
      r.expires_at := array[t.expires_at];
      r.tenants := array[t.tenant]; r.keys := array[t.key]; r.tags := array[to_json(t.tags)::text];
      r.settings := array[t.settings];
      r.workflows := array[t.workflow]; r.turns := array[t.turn]; r.partitions := array[t.partition];
    end if;
    r.firsts := r.ids; r.counts := array[r.tasks]; r.lo := t.xid; r.hi := t.xid;
    r.n := case when t.packed is null then t.n else t.n + _skip + r.tasks end;
    _all := _all || r;
    _left := _left - r.tasks;
    exit when _left = 0;
  end loop;
  return _all;
end $$;

-- Waits for other claims of a lane. Returns false at once if the lane is being changed, because a user's transaction
-- may do that and stay open for long.
create function tusk_fn.await_lane(_lane bigint) returns boolean language plpgsql as $$
begin
  return pg_try_advisory_xact_lock_shared(~(_lane # ('tusk.log'::regclass::oid::bigint << 31)))
    and pg_advisory_xact_lock(_lane # ('tusk.log'::regclass::oid::bigint << 31)) is not null;
end $$;

-- The rows of a lane that are visible in a window, from a position in the index on.
create function tusk_fn.rows_after(_lane bigint, _win pg_snapshot, _from xid8, _n bigint, _want int)
  returns setof tusk.log
language sql stable as $$
  select t.*
  from tusk.log t
  where t.lane = _lane and t.xid >= _from and t.xid < pg_snapshot_xmax(_win)
    and (t.xid, t.n) >= (_from, _n & -256) and (t.xid, tusk_fn.last_n(t.n, t.packed)) > (_from, _n)
    and pg_visible_in_snapshot(t.xid, _win)
  order by t.lane, t.xid, t.n limit _want
$$;

-- Like rows_after, preceded by late rows: those of transactions that were in progress when the lane was claimed up to
-- _done and have committed since, one transaction after another.
create function tusk_fn.rows_next(_lane bigint, _done pg_snapshot, _win pg_snapshot, _at_xid xid8, _at_n bigint,
  _from xid8, _n bigint, _want int)
returns setof tusk.log language sql stable as $$
  (select t.*
   from (select x from pg_snapshot_xip(_done) x where x >= _at_xid and pg_visible_in_snapshot(x, _win) order by x) late
   cross join lateral (
     select t.* from tusk.log t
     where t.lane = _lane and t.xid = late.x and (t.xid, t.n) >= (_at_xid, _at_n & -256)
       and (t.xid, tusk_fn.last_n(t.n, t.packed)) > (_at_xid, _at_n)
     order by t.lane, t.xid, t.n limit _want) t
   limit _want)
  union all
  select t.* from tusk_fn.rows_after(_lane, _win, _from, _n, _want) t
  limit _want
$$;

-- The lanes of many queues, in order, except most of those that are empty. It never omits a lane with tasks. No two of
-- its probes are the same, so a Memoize node would only add a third to its cost.
create function tusk_fn.lanes_with_rows(_queues bigint[]) returns bigint[] language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_memoize = off set plan_cache_mode = force_generic_plan
  set jit = off
as $$
declare
  _here pg_snapshot := pg_current_snapshot();
  _end  xid8 := pg_snapshot_xmax(_here); -- segments from this xid on are empty
begin
  return array(
    select l.id
    from unnest(_queues) with ordinality q(id, place)
    cross join lateral (select distinct x.id from tusk.lane x where x.id between q.id and q.id + 65535) l
    left join lateral (select y.* from tusk.lane_position y where y.lane = l.id order by y.no desc limit 1) p on true
    where p.lane is null
      or exists (
        select from tusk.log t
        where t.lane = l.id and (t.xid, t.n) >= (greatest(p.at_xid, pg_snapshot_xmax(p.done)),
          case when p.at_xid >= pg_snapshot_xmax(p.done) then p.at_n & -256 else 0 end)
          and (t.xid, tusk_fn.last_n(t.n, t.packed)) > (greatest(p.at_xid, pg_snapshot_xmax(p.done)),
            case when p.at_xid >= pg_snapshot_xmax(p.done) then p.at_n else -1 end)
          and t.xid >= greatest(p.at_xid, pg_snapshot_xmax(p.done)) and t.xid < _end)
      or pg_snapshot_xmin(p.done) < pg_snapshot_xmax(p.done)
        and exists (
          select from pg_snapshot_xip(p.done) x
          -- one transaction at a time: a join might read the whole lane
          cross join lateral (
            select from tusk.log t
            where t.lane = l.id and t.xid = x and (t.xid, tusk_fn.last_n(t.n, t.packed)) > (p.at_xid, p.at_n)
            limit 1) late
          where pg_visible_in_snapshot(x, _here))
      or p.win is not null
        and exists (select from pg_snapshot_xip(p.win) x where pg_visible_in_snapshot(x, _here))
    order by q.place, l.id);
end $$;
