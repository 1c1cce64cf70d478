-- Claims up to _limit tasks for a worker, from the lanes of its queues in order
-- of priority. Every statement that judges comes after the lock and sees what
-- the lock's last holder wrote. Nothing is written where nothing is found.
--
-- Tasks are returned in columns, a row for each piece of a lane: hundreds of rows
-- cost the server and the worker more than the arrays of one. The columns from
-- attempts on are null while every task has only what it must have; _full asks
-- for them at once. A pack is a row by itself: what its tasks share is an array of
-- one, and so is the first of their ids. _packed says that packs are likely. Args too
-- large for an array come in rows of their own, after the others, with neither a time
-- nor anything else but the id. Who has locked one of the lanes names it in _held, and
-- waits for no other.
-- In the model (docs/design/model.md): ClaimJudge, ClaimTake.
create function tusk_fn.claim(_worker uuid, _token uuid, _queues bigint[], _limit int, _again boolean, _lock bigint,
  _full boolean, _packed boolean, _held bigint default 0)
returns table (
  lane bigint, claimed_at timestamptz, ids uuid[], kinds text[], args bytea[], enqueued_at timestamptz[],
  attempts int[], crashes int[], run_at timestamptz[], expires_at timestamptz[], tenants text[], keys text[],
  tags text[], settings bytea[], workflows uuid[], turns boolean[], partitions text[])
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
  set lock_timeout = '2s'
as $$
#variable_conflict use_column
declare
  _alive  boolean;
  _known  boolean; -- the token
  _lanes  bigint[];
  _lane   bigint;
  _want   int := _limit;
  _got    int; -- from the lane
  _size   int; -- of the last piece
  _first  boolean;
  _plain  boolean;
  _packs  boolean;
  _skip   int; -- of a pack
  _take   int;
  _open   boolean; -- the lane had a window
  _last   boolean;
  _here   pg_snapshot;
  _win    pg_snapshot;
  _from   xid8; -- where to go on in the index
  _n      bigint;
  _xids   xid8[];
  _ns     bigint[];
  _sorted uuid[]; -- of the last piece, in runs
  _sizes  int[];
  _firsts uuid[]; -- of the lane
  _counts int[];
  _sort   boolean; -- they are not sorted yet
  _lo     xid8;
  _hi     xid8;
  p       tusk.lane_position;
  _rows   cursor for select x.* from tusk_fn.rows_next(_lane, p.done, _win, p.at_xid, p.at_n, _from, _n, _want) x;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    perform tusk_fn.need_read_committed();
  end if;
  -- A request and its repetition: the one that comes second sees what the
  -- first did, whichever that is. Assigned, for to perform it costs ten times as much.
  _first := pg_advisory_xact_lock(_lock) is not null and set_config('synchronous_commit', 'off', true) is not null;
  select exists (select from tusk.worker w where w.id = _worker and not w.dead),
    exists (select from tusk.lease l where l.token = _token),
    case when cardinality(_queues) = 1
      then array(
        select distinct x.id from tusk.lane x where x.id between _queues[1] and _queues[1] + 65535 order by x.id)
      else tusk_fn.lanes_to_try(_queues) end
  into _alive, _known, _lanes;
  if not _alive then
    raise exception 'the worker is dead' using errcode = 'TK001';
  end if;
  if _known or _again then
    if _again then
      return query
      select h.lane, h.claimed_at, array[h.id], array[h.kind], array[h.args], array[h.enqueued_at], array[h.attempt],
        array[h.crashes], array[h.run_at], array[h.expires_at], array[h.tenant], array[h.key],
        array[to_json(h.tags)::text], array[h.settings], array[h.workflow], array[h.turn], array[h.partition]
      from tusk_fn.held(_token) h;
    end if;
    return;
  end if;
  _first := _held in (0, _lanes[1]);
  foreach _lane in array _lanes loop
    if pg_try_advisory_xact_lock(_lane # ('tusk.log'::regclass::oid::bigint << 31)) then
      claimed_at := clock_timestamp();
    else
      continue when not _first or not tusk_fn.await_lane(_lane);
      claimed_at := clock_timestamp();
      perform tusk_fn.need_alive(_worker); -- it may have been declared dead meanwhile
    end if;
    _first := false;
    lane := _lane;
    select * into p from tusk.lane_position q where q.lane = _lane order by q.no desc limit 1;
    if not found then
      p := row(_lane, 0, '1:1:', null, '0', 0, 0)::tusk.lane_position;
    end if;
    _here := pg_current_snapshot();
    _open := p.win is not null;
    _got := 0;
    _sort := false;
    -- Once with the window that is there, if there is one, and if that has too
    -- little left once more, up to here.
    loop
      _win := coalesce(p.win, _here);
      -- One point to start from. Of two lower bounds the index would take the
      -- lesser, and walk over all that was ever claimed.
      _from := greatest(p.at_xid, pg_snapshot_xmax(p.done));
      _n := case when p.at_xid >= pg_snapshot_xmax(p.done) then p.at_n else -1 end;
      _plain := not _full;
      _packs := _packed;
      _sizes := null;
      attempts := null;
      if _packs then
        _plain := true;
      elsif _plain and (pg_snapshot_xmin(p.done) = pg_snapshot_xmax(p.done)
        or p.at_xid >= pg_snapshot_xmax(p.done)) then
        -- Nobody was writing when the lane was last looked at, or it has gone past them:
        -- no late rows to look for, which is much of the work of a small claim.
        select array_agg(r.id), array_agg(r.kind), array_agg(case when octet_length(r.args) <= 8192 then r.args end),
          array_agg(r.enqueued_at), array_agg(r.xid), array_agg(r.n), array_agg(r.id order by r.id),
          bool_and(r.attempt = 0 and r.crashes = 0 and r.run_at is null and r.expires_at is null and r.tenant is null
            and r.key is null and r.tags is null and r.settings is null and r.workflow is null and r.turn is null
            and r.partition is null),
          bool_or(r.packed is not null)
        into ids, kinds, args, enqueued_at, _xids, _ns, _sorted, _plain, _packs
        from tusk_fn.rows_after(_lane, _win, _from, _n, _want) r;
      elsif _plain then
        select array_agg(r.id), array_agg(r.kind), array_agg(case when octet_length(r.args) <= 8192 then r.args end),
          array_agg(r.enqueued_at), array_agg(r.xid), array_agg(r.n), array_agg(r.id order by r.id),
          bool_and(r.attempt = 0 and r.crashes = 0 and r.run_at is null and r.expires_at is null and r.tenant is null
            and r.key is null and r.tags is null and r.settings is null and r.workflow is null and r.turn is null
            and r.partition is null),
          bool_or(r.packed is not null)
        into ids, kinds, args, enqueued_at, _xids, _ns, _sorted, _plain, _packs
        from tusk_fn.rows_next(_lane, p.done, _win, p.at_xid, p.at_n, _from, _n, _want) r;
      end if;
      if not _plain and not _packs then
        select array_agg(r.id), array_agg(r.kind), array_agg(case when octet_length(r.args) <= 8192 then r.args end),
          array_agg(r.enqueued_at), array_agg(r.xid), array_agg(r.n), array_agg(r.id order by r.id),
          array_agg(r.attempt + 1), array_agg(r.crashes), array_agg(r.run_at), array_agg(r.expires_at),
          array_agg(r.tenant), array_agg(r.key), array_agg(to_json(r.tags)::text), array_agg(r.settings),
          array_agg(r.workflow), array_agg(r.turn), array_agg(r.partition), bool_or(r.packed is not null)
        into ids, kinds, args, enqueued_at, _xids, _ns, _sorted, attempts, crashes, run_at, expires_at, tenants, keys,
          tags, settings, workflows, turns, partitions, _packs
        from tusk_fn.rows_next(_lane, p.done, _win, p.at_xid, p.at_n, _from, _n, _want) r;
      end if;
      if _packs then
        _size := 0; _xids := '{}'; _sorted := '{}'; _sizes := '{}';
        for _row in _rows loop -- one at a time, for each may be all that is wanted
          _skip := case when _row.packed is not null and _row.xid = p.at_xid then greatest(p.at_n - _row.n, 0)
            else 0 end;
          _take := least(coalesce(cardinality(_row.packed), 1) - _skip, _want - _size);
          ids := array[case when _skip = 0 then _row.id else tusk_fn.id_after(_row.id, _skip) end];
          args := case when _row.packed is null then array[_row.args] else _row.packed[_skip + 1 : _skip + _take] end;
          kinds := array[_row.kind]; enqueued_at := array[_row.enqueued_at];
          attempts := null;
          if _row.packed is null or _row.expires_at is not null or _row.tags is not null
            or _row.settings is not null then
            attempts := array[_row.attempt + 1]; crashes := array[_row.crashes]; run_at := array[_row.run_at];
            expires_at := array[_row.expires_at];
            tenants := array[_row.tenant]; keys := array[_row.key]; tags := array[to_json(_row.tags)::text];
            settings := array[_row.settings];
            workflows := array[_row.workflow]; turns := array[_row.turn]; partitions := array[_row.partition];
          end if;
          return next;
          _sort := _sort or coalesce(ids[1] < _sorted[cardinality(_sorted)], false);
          _sorted := _sorted || ids;
          _sizes := _sizes || _take;
          _xids := array[coalesce(_xids[1], _row.xid), _row.xid];
          _ns := array[case when _row.packed is null then _row.n else _row.n + _skip + _take end];
          _size := _size + _take;
          exit when _size = _want;
        end loop;
      else
        _size := coalesce(cardinality(_xids), 0);
        if _size > 0 then
          return next;
          if array_position(args, null) is not null then
            return query select * from tusk_fn.large_args(_lane, ids, args, _xids);
          end if;
        end if;
      end if;
      if _size > 0 then
        if _got = 0 then
          _lo := _xids[1]; _hi := _xids[cardinality(_xids)]; _firsts := _sorted; _counts := _sizes;
        else
          if _counts is not null or _sizes is not null then
            _counts := coalesce(_counts, array_fill(1, array[cardinality(_firsts)]))
              || coalesce(_sizes, array_fill(1, array[_size]));
          end if;
          _lo := least(_lo, _xids[1]); _hi := greatest(_hi, _xids[cardinality(_xids)]); _firsts := _firsts || _sorted;
          _sort := true;
        end if;
        _got := _got + _size;
        _want := _want - _size;
      end if;
      if _want = 0 then
        p.win := _win; p.at_xid := _xids[cardinality(_xids)]; p.at_n := _ns[cardinality(_ns)];
        exit;
      end if;
      _last := p.win is null;
      p.done := _win; p.win := null; p.at_xid := '0'; p.at_n := 0;
      exit when _last;
    end loop;
    if _got > 0 then
      if cardinality(_firsts) = _got then
        _counts := null;
      end if;
      if _sort then
        select array_agg(u.first order by u.first), case when _counts is not null
          then array_agg(u.count order by u.first) end
        into _firsts, _counts
        from unnest(_firsts, _counts) u(first, count);
      end if;
      insert into tusk.lease (token, lane, worker, claimed_at, lo, hi, firsts, counts)
      values (_token, _lane, _worker, claimed_at, _lo, _hi, _firsts, _counts);
    end if;
    -- Many rows that were stepped over because nobody can see them yet are not
    -- stepped over again.
    if _got > 0 or _open or clock_timestamp() - claimed_at > interval '3 ms' then
      insert into tusk.lane_position (lane, no, done, win, at_xid, at_n, claimed)
      values (_lane, p.no + 1, p.done, p.win, p.at_xid, p.at_n, p.claimed + _got);
    end if;
    if _want = 0 then
      return;
    end if;
  end loop;
end $$;

-- Refuses a worker that was declared dead.
create function tusk_fn.need_alive(_worker uuid) returns void language plpgsql as $$
begin
  if not exists (select from tusk.worker w where w.id = _worker and not w.dead) then
    raise exception 'the worker is dead' using errcode = 'TK001';
  end if;
end $$;

-- Waits for other claims of a lane. False: it is being changed, perhaps by a user's
-- transaction that stays open for long, and nobody waits for that.
create function tusk_fn.await_lane(_lane bigint) returns boolean language plpgsql as $$
begin
  return pg_try_advisory_xact_lock_shared(~(_lane # ('tusk.log'::regclass::oid::bigint << 31)))
    and pg_advisory_xact_lock(_lane # ('tusk.log'::regclass::oid::bigint << 31)) is not null;
end $$;

-- The rows of a lane that are visible in a window, from a point of the index on.
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

-- The same, and before them the rows of transactions that were in flight when the
-- lane was claimed up to _done and are not now, one transaction after another.
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
  (select t.*
   from tusk.log t
   where t.lane = _lane and t.xid >= _from and t.xid < pg_snapshot_xmax(_win)
     and (t.xid, t.n) >= (_from, _n & -256) and (t.xid, tusk_fn.last_n(t.n, t.packed)) > (_from, _n)
     and pg_visible_in_snapshot(t.xid, _win)
   order by t.lane, t.xid, t.n limit _want)
  limit _want
$$;

-- The args that claim left out: those of _ids whose place in _args is null.
create function tusk_fn.large_args(_lane bigint, _ids uuid[], _args bytea[], _xids xid8[])
returns table (
  lane bigint, claimed_at timestamptz, ids uuid[], kinds text[], args bytea[], enqueued_at timestamptz[],
  attempts int[], crashes int[], run_at timestamptz[], expires_at timestamptz[], tenants text[], keys text[],
  tags text[], settings bytea[], workflows uuid[], turns boolean[], partitions text[])
language sql stable as $$
  select _lane, null::timestamptz, array[u.id], null::text[], array[t.args], null::timestamptz[], null::int[],
    null::int[], null::timestamptz[], null::timestamptz[], null::text[], null::text[], null::text[], null::bytea[],
    null::uuid[], null::boolean[], null::text[]
  from unnest(_ids, _args, _xids) u(id, args, xid)
  join tusk.log t on t.lane = _lane and t.xid = u.xid and t.id = u.id and t.packed is null
  where u.args is null
$$;

-- The lanes of several queues, in order.
create function tusk_fn.lanes_to_try(_queues bigint[]) returns bigint[] language plpgsql as $$
begin
  if cardinality(_queues) > 4 then
    return tusk_fn.lanes_with_rows(_queues);
  end if;
  return array(
    select l.id
    from unnest(_queues) with ordinality q(id, place)
    cross join lateral (select distinct x.id from tusk.lane x where x.id between q.id and q.id + 65535) l
    order by q.place, l.id);
end $$;

-- Of many queues most have nothing: they are sorted out in one statement, by signs
-- that may err on the side of looking. No two of its probes are alike, so that
-- remembering them would cost a third of it.
create function tusk_fn.lanes_with_rows(_queues bigint[]) returns bigint[] language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_memoize = off set plan_cache_mode = force_generic_plan
  set jit = off
as $$
declare
  _here pg_snapshot := pg_current_snapshot();
  _end  xid8 := pg_snapshot_xmax(_here); -- segments from there on are empty
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
          -- one transaction after another: joined, all of the lane might be read
          cross join lateral (
            select from tusk.log t
            where t.lane = l.id and t.xid = x and (t.xid, tusk_fn.last_n(t.n, t.packed)) > (p.at_xid, p.at_n)
            limit 1) late
          where pg_visible_in_snapshot(x, _here))
      or p.win is not null
        and exists (select from pg_snapshot_xip(p.win) x where pg_visible_in_snapshot(x, _here))
    order by q.place, l.id);
end $$;

-- The tasks that a token still holds, as its claim returned them.
create function tusk_fn.held(_token uuid)
returns table (
  lane bigint, id uuid, kind text, args bytea, enqueued_at timestamptz, attempt int, crashes int, run_at timestamptz,
  expires_at timestamptz, claimed_at timestamptz, tenant text, key text, tags text[], settings bytea,
  workflow uuid, turn boolean, partition text)
language sql stable as $$
  select r.lane, r.id, t.kind, t.args, t.enqueued_at, t.attempt + 1, t.crashes, t.run_at, t.expires_at, r.claimed_at,
    t.tenant, t.key, t.tags, t.settings, t.workflow, t.turn, t.partition
  from tusk_fn.running r
  cross join lateral (
    select t.* from (select * from tusk_fn.rows_of(r.id, r.lo, r.hi) offset 0) t
    where t.lane = r.lane
    order by t.xid desc limit 1) t
  where r.token = _token
  order by r.lane, t.xid, t.n
$$;
