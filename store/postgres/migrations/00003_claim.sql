-- up
set local lock_timeout = '5s';

-- Claims up to _limit tasks for a worker, from the lanes of its queues in order
-- of priority. Every statement that judges comes after the lock and sees what
-- the lock's last holder wrote. Nothing is written where nothing is found.
create function tusk.claim(_worker uuid, _token uuid, _queues bigint[], _limit int, _again boolean, _lock bigint)
returns table (
  lane bigint, id uuid, kind text, args bytea, enqueued_at timestamptz, attempt int, crashes int, run_at timestamptz,
  expires_at timestamptz, claimed_at timestamptz, tenant text, key text, tags text[], settings bytea,
  workflow uuid, turn boolean, partition text)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
#variable_conflict use_column
declare
  _lane  bigint;
  _want  int := _limit;
  _got   int;
  _first boolean := true;
  _look  boolean;
  _from  xid8;
  _n     bigint;
  p      tusk.lane_position;
  _here  pg_snapshot;
  _now   timestamptz;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    perform tusk.need_read_committed();
  end if;
  if not exists (select from tusk.worker w where w.id = _worker and not w.dead) then
    raise exception 'the worker is dead' using errcode = 'TK001';
  end if;
  perform set_config('synchronous_commit', 'off', true);
  -- A request and its repetition: the one that comes second sees what the
  -- first did, whichever that is.
  perform pg_advisory_xact_lock(_lock);
  if exists (select from tusk.lease l where l.token = _token) then
    if _again then
      return query select * from tusk.held(_token);
    end if;
    return;
  end if;
  foreach _lane in array tusk.lanes_to_try(_queues) loop
    if _first then
      perform pg_advisory_xact_lock(_lane # ('tusk.task'::regclass::oid::bigint << 31));
      _first := false;
    elsif not pg_try_advisory_xact_lock(_lane # ('tusk.task'::regclass::oid::bigint << 31)) then
      continue;
    end if;
    _now := clock_timestamp();
    select * into p from tusk.lane_position q where q.lane = _lane order by q.no desc limit 1;
    if not found then
      p := row(_lane, 0, '1:1:', null, '0', 0, 0)::tusk.lane_position;
    end if;
    _here := pg_current_snapshot();
    _got := 0;
    -- One point to start from. Of two lower bounds the index would take the
    -- lesser, and walk over all that was ever claimed.
    _from := greatest(p.at_xid, pg_snapshot_xmax(p.done));
    _n := case when p.at_xid >= pg_snapshot_xmax(p.done) then p.at_n else -1 end;
    -- Nobody was writing when the lane was last looked at: no late rows to
    -- look for, which is half of the work of a small claim.
    if pg_snapshot_xmin(p.done) = pg_snapshot_xmax(p.done) then
      return query
      with r as materialized (
        select t.xid, t.n, t.id, t.kind, t.args, t.enqueued_at, t.attempt, t.crashes, t.run_at, t.expires_at, t.tenant, t.key, t.tags, t.settings,
          t.workflow, t.turn, t.partition
        from tusk.task t
        where t.lane = _lane and t.xid >= _from and t.xid < pg_snapshot_xmax(coalesce(p.win, _here))
          and (t.xid, t.n) > (_from, _n) and pg_visible_in_snapshot(t.xid, coalesce(p.win, _here))
        order by t.lane, t.xid, t.n limit _want),
      batch as (
        select * from (
          select count(*)::int as size, array_agg(r.id order by r.id) as ids, array_agg(r.xid) as xids, array_agg(r.n) as ns from r) b
        where b.size = _want or b.size > 0 and p.win is null),
      lease as (
        insert into tusk.lease (token, lane, worker, claimed_at, lo, hi, ids)
        select _token, _lane, _worker, _now, b.xids[1], b.xids[b.size], b.ids from batch b),
      position as (
        insert into tusk.lane_position (lane, no, done, win, at_xid, at_n, claimed)
        select _lane, p.no + 1,
          case when b.size < _want then _here else p.done end,
          case when b.size < _want then null else coalesce(p.win, _here) end,
          case when b.size < _want then '0'::xid8 else b.xids[b.size] end,
          case when b.size < _want then 0 else b.ns[b.size] end,
          p.claimed + b.size
        from batch b)
      select _lane, r.id, r.kind, r.args, r.enqueued_at, r.attempt + 1, r.crashes, r.run_at, r.expires_at, _now, r.tenant, r.key,
        r.tags, r.settings, r.workflow, r.turn, r.partition
      from batch cross join r;
      get diagnostics _got = row_count;
      _look := _got = 0 and p.win is not null; -- a window with too few left
    else
      _look := true;
    end if;
    if _look then
      return query select * from tusk.claim_lane(_worker, _token, _lane, _want, p, _here, _now, _from, _n);
      get diagnostics _got = row_count;
    end if;
    if _got = 0 and p.win is null and clock_timestamp() - _now > interval '3 ms' then
      -- Many rows were stepped over that nobody can see yet: not again.
      insert into tusk.lane_position (lane, no, done, win, at_xid, at_n, claimed)
      values (_lane, p.no + 1, _here, null, '0', 0, p.claimed);
    end if;
    _want := _want - _got;
    if _want = 0 then
      return;
    end if;
  end loop;
end $$;

-- The lanes of queues, in order. Of many queues most have nothing: they are
-- sorted out in one statement, by signs that may err on the side of looking.
create function tusk.lanes_to_try(_queues bigint[]) returns bigint[] language plpgsql as $$
begin
  if cardinality(_queues) <= 4 then
    return array(
      select l.id
      from unnest(_queues) with ordinality q(id, place)
      cross join lateral (select distinct x.id from tusk.lane x where x.id between q.id and q.id + 65535) l
      order by q.place, l.id);
  end if;
  return array(
    select l.id
    from unnest(_queues) with ordinality q(id, place)
    cross join lateral (select distinct x.id from tusk.lane x where x.id between q.id and q.id + 65535) l
    left join lateral (select y.* from tusk.lane_position y where y.lane = l.id order by y.no desc limit 1) p on true
    where p.lane is null
      or exists (
        select from tusk.task t
        where t.lane = l.id and (t.xid, t.n) > (greatest(p.at_xid, pg_snapshot_xmax(p.done)),
          case when p.at_xid >= pg_snapshot_xmax(p.done) then p.at_n else -1 end)
          and t.xid >= greatest(p.at_xid, pg_snapshot_xmax(p.done)))
      or pg_snapshot_xmin(p.done) < pg_snapshot_xmax(p.done)
        and exists (select from pg_snapshot_xip(p.done) x where pg_visible_in_snapshot(x, pg_current_snapshot()))
      or p.win is not null
        and exists (select from pg_snapshot_xip(p.win) x where pg_visible_in_snapshot(x, pg_current_snapshot()))
    order by q.place, l.id);
end $$;

-- Claims from one lane, whose lock is held, with the rows of late committers.
create function tusk.claim_lane(_worker uuid, _token uuid, _lane bigint, _want int, p tusk.lane_position, _here pg_snapshot, _now timestamptz,
  _from xid8, _n bigint)
returns table (
  lane bigint, id uuid, kind text, args bytea, enqueued_at timestamptz, attempt int, crashes int, run_at timestamptz,
  expires_at timestamptz, claimed_at timestamptz, tenant text, key text, tags text[], settings bytea,
  workflow uuid, turn boolean, partition text)
language plpgsql as $$
#variable_conflict use_column
begin
  if p.win is null then
    return query
    with r as materialized (
      (select t.*
       from (select x from pg_snapshot_xip(p.done) x where pg_visible_in_snapshot(x, _here) order by x) late
       cross join lateral (
         select t.* from tusk.task t where t.lane = _lane and t.xid = late.x order by t.lane, t.xid, t.n limit _want) t
       limit _want)
      union all
      (select t.*
       from tusk.task t
       where t.lane = _lane and t.xid >= pg_snapshot_xmax(p.done) and t.xid < pg_snapshot_xmax(_here)
         and pg_visible_in_snapshot(t.xid, _here)
       order by t.lane, t.xid, t.n limit _want)
      limit _want),
    batch as (
      select count(*)::int as size, array_agg(r.id order by r.id) as ids, array_agg(r.xid) as xids, array_agg(r.n) as ns from r),
    lease as (
      insert into tusk.lease (token, lane, worker, claimed_at, lo, hi, ids)
      select _token, _lane, _worker, _now, b.xids[1], b.xids[b.size], b.ids from batch b where b.size > 0),
    position as (
      insert into tusk.lane_position (lane, no, done, win, at_xid, at_n, claimed)
      select _lane, p.no + 1,
        case when b.size < _want then _here else p.done end,
        case when b.size < _want then null else _here end,
        case when b.size < _want then '0'::xid8 else b.xids[b.size] end,
        case when b.size < _want then 0 else b.ns[b.size] end,
        p.claimed + b.size
      from batch b where b.size > 0)
    select _lane, r.id, r.kind, r.args, r.enqueued_at, r.attempt + 1, r.crashes, r.run_at, r.expires_at, _now, r.tenant, r.key,
      r.tags, r.settings, r.workflow, r.turn, r.partition
    from r;
    return;
  end if;
  -- What the window still holds, and then what came after it.
  return query
  with r as materialized (
    (select false as beyond, t.*
     from (select x from pg_snapshot_xip(p.done) x where x >= p.at_xid and pg_visible_in_snapshot(x, p.win) order by x) late
     cross join lateral (
       select t.* from tusk.task t
       where t.lane = _lane and t.xid = late.x and (t.xid, t.n) > (p.at_xid, p.at_n)
       order by t.lane, t.xid, t.n limit _want) t
     limit _want)
    union all
    (select false, t.*
     from tusk.task t
     where t.lane = _lane and t.xid >= _from and t.xid < pg_snapshot_xmax(p.win)
       and (t.xid, t.n) > (_from, _n) and pg_visible_in_snapshot(t.xid, p.win)
     order by t.lane, t.xid, t.n limit _want)
    union all
    (select true, t.*
     from (select x from pg_snapshot_xip(p.win) x where pg_visible_in_snapshot(x, _here) order by x) late
     cross join lateral (
       select t.* from tusk.task t where t.lane = _lane and t.xid = late.x order by t.lane, t.xid, t.n limit _want) t
     limit _want)
    union all
    (select true, t.*
     from tusk.task t
     where t.lane = _lane and t.xid >= pg_snapshot_xmax(p.win) and t.xid < pg_snapshot_xmax(_here)
       and pg_visible_in_snapshot(t.xid, _here)
     order by t.lane, t.xid, t.n limit _want)
    limit _want),
  batch as (
    select count(*)::int as size, coalesce(bool_or(r.beyond), false) as beyond, array_agg(r.id order by r.id) as ids,
      array_agg(r.xid) as xids, array_agg(r.n) as ns from r),
  lease as (
    insert into tusk.lease (token, lane, worker, claimed_at, lo, hi, ids)
    select _token, _lane, _worker, _now, (select r.xid from r order by r.xid limit 1),
      (select r.xid from r order by r.xid desc limit 1), b.ids
    from batch b where b.size > 0),
  position as (
    insert into tusk.lane_position (lane, no, done, win, at_xid, at_n, claimed)
    select _lane, p.no + 1,
      case when b.size < _want then _here when b.beyond then p.win else p.done end,
      case when b.size < _want then null when b.beyond then _here else p.win end,
      case when b.size < _want then '0'::xid8 else b.xids[b.size] end,
      case when b.size < _want then 0 else b.ns[b.size] end,
      p.claimed + b.size
    from batch b)
  select _lane, r.id, r.kind, r.args, r.enqueued_at, r.attempt + 1, r.crashes, r.run_at, r.expires_at, _now, r.tenant, r.key,
    r.tags, r.settings, r.workflow, r.turn, r.partition
  from r;
end $$;

-- The tasks that a token still holds, as its claim returned them.
create function tusk.held(_token uuid)
returns table (
  lane bigint, id uuid, kind text, args bytea, enqueued_at timestamptz, attempt int, crashes int, run_at timestamptz,
  expires_at timestamptz, claimed_at timestamptz, tenant text, key text, tags text[], settings bytea,
  workflow uuid, turn boolean, partition text)
language sql stable as $$
  select r.lane, r.id, t.kind, t.args, t.enqueued_at, t.attempt + 1, t.crashes, t.run_at, t.expires_at, r.claimed_at,
    t.tenant, t.key, t.tags, t.settings, t.workflow, t.turn, t.partition
  from tusk.running r
  cross join lateral (
    select t.* from tusk.task t
    where t.id = r.id and t.lane = r.lane and t.xid between r.lo and r.hi
    order by t.xid desc limit 1) t
  where r.token = _token
  order by r.lane, t.xid, t.n
$$;

-- down
set local lock_timeout = '5s';
drop function tusk.claim, tusk.lanes_to_try, tusk.claim_lane, tusk.held;
