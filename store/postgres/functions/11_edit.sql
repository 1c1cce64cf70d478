-- Locks for changes that store/rules decides. The statements that read tasks for the rules and apply the changes are in
-- sql/edit.sql.

-- Locks tasks at their places, and everything else that a change of them may touch, in the order of 03_lock.sql. Nobody
-- else can change them until the transaction ends. A task that moved before it was locked is locked at its new place,
-- without waiting. _to is the lane of a move.
create function tusk_fn.lock_tasks(_ids uuid[], _op smallint, _to bigint) returns void
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  _was record;
  _is  record;
begin
  perform tusk_fn.need_read_committed();
  perform set_config('lock_timeout', '300ms', true), set_config('idle_in_transaction_session_timeout', '10s', true);
  select * into _was from tusk_fn.spots_of(_ids);
  perform tusk_fn.lock_spots(_ids, _was.states, _was.lanes, _was.tokens, _was.keys, _op, _to);
  if _op = 2 then
    perform pg_current_xact_id(); -- so that a parent that it takes for unfinished is not pruned
  end if;
  for i in 1 .. 5 loop
    select * into _is from tusk_fn.spots_of(_ids);
    if _is = _was then
      return;
    elsif not tusk_fn.try_spots(_ids, _is.states, _is.lanes, _is.tokens, _is.keys, _op) then
      perform tusk_fn.begin_anew();
    end if;
    _was := _is;
  end loop;
  perform tusk_fn.begin_anew();
end $$;

-- The places of tasks, in the order given: their states, lanes, leases, and keys with tenants.
create function tusk_fn.spots_of(_ids uuid[],
  out states smallint[], out lanes bigint[], out tokens uuid[], out keys text[])
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
begin
  select array_agg(s.state order by u.place), array_agg(s.lane order by u.place),
    array_agg(s.token order by u.place),
    array_agg(case when s.key is not null then tusk_fn.tenant_key(s.tenant, s.key) end order by u.place)
  into states, lanes, tokens, keys
  from unnest(_ids) with ordinality u(id, place)
  left join lateral (
    select x.state, x.lane, x.token, x.tenant, x.key from tusk_fn.state_of(u.id) x limit 1) s on true;
end $$;

create function tusk_fn.lock_spots(_ids uuid[], _states smallint[], _lanes bigint[], _tokens uuid[], _keys text[],
  _op smallint, _to bigint)
returns void language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  _queues bigint[];
  _names  text[];
  _lane   bigint;
begin
  if _op = 1 then
    perform 1 from tusk.lease x
    join (
      select distinct s.token, s.lane from unnest(_states, _lanes, _tokens) s(state, lane, token) where s.state = 4) s
      on x.token = s.token and x.lane = s.lane
    order by x.token, x.lane for share of x;
  end if;
  select array_agg(q.queue), array_agg(q.key) into _queues, _names
  from (
    select s.lane >> 16 as queue, s.key from unnest(_lanes, _keys) s(lane, key) where s.key is not null
    union
    select _to >> 16, s.key from unnest(_keys) s(key) where s.key is not null and _op = 5) q;
  if _queues is not null then
    perform tusk_fn.lock_keys(_queues, _names);
  end if;
  perform tusk_fn.lock_waiting(
    _ids || case when _queues is null then '{}' else tusk_fn.tasks_of_keys(_queues, _names) end,
    case when _op in (1, 3) then tusk_fn.children_of(_ids) else '{}' end);
  if _op in (2, 3) then
    perform 1 from (select distinct u.id from unnest(_ids) u(id) order by 1) u
    cross join lateral (select from tusk.dead d where d.id = u.id for update) d;
    perform 1 from unnest(_ids, _states) u(id, state)
    cross join lateral (select t.* from tusk_fn.rows_of(u.id) t where u.state = 6 offset 0) t
    cross join lateral tusk_fn.flush_of(t.lane, t.xid, u.id) y
    join tusk.outcome o on o.ctid = y.at
    order by o.lane, o.node, o.token for update of o;
  end if;
  if _op <> 2 then
    for _lane in
      select distinct s.lane from unnest(_states, _lanes) s(state, lane) where s.state = 3 order by 1
    loop
      perform tusk_fn.lock_lane(_lane);
    end loop;
  end if;
end $$;

-- Like lock_spots, without waiting. Returns false if somebody else holds a lock.
create function tusk_fn.try_spots(_ids uuid[], _states smallint[], _lanes bigint[], _tokens uuid[], _keys text[],
  _op smallint) returns boolean
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  _mine   uuid[];
  _queues bigint[];
  _names  text[];
begin
  if _op = 1 then
    _mine := array(
      select x.token from tusk.lease x
      join (
        select distinct s.token, s.lane from unnest(_states, _lanes, _tokens) s(state, lane, token) where s.state = 4) s
        on x.token = s.token and x.lane = s.lane for share of x skip locked);
    if exists (
      select from unnest(_states, _tokens) s(state, token) where s.state = 4 and s.token <> all(_mine)) then
      return false;
    end if;
  end if;
  select array_agg(s.lane >> 16), array_agg(s.key) into _queues, _names
  from unnest(_lanes, _keys) s(lane, key) where s.key is not null;
  if _queues is not null and tusk_fn.try_keys(_queues, _names) <> '{}' then
    return false;
  end if;
  _mine := array(
    select u.id from unnest(_ids) u(id)
    cross join lateral (select from tusk.unready w where w.id = u.id for update skip locked) w);
  if _op in (2, 3) then
    _mine := _mine || array(
      select u.id from unnest(_ids) u(id)
      cross join lateral (select from tusk.dead d where d.id = u.id for update skip locked) d);
    _mine := _mine || array(
      select u.id from unnest(_ids, _states) u(id, state)
      cross join lateral (select t.* from tusk_fn.rows_of(u.id) t where u.state = 6 offset 0) t
      cross join lateral tusk_fn.flush_of(t.lane, t.xid, u.id) y
      join tusk.outcome o on o.ctid = y.at for update of o skip locked);
  end if;
  return not exists (
      select from unnest(_ids, _states) s(id, state)
      where (s.state in (1, 2, 5) or s.state >= 6 and _op in (2, 3)) and s.id <> all(_mine))
    and (_op = 2 or coalesce((
      select bool_and(tusk_fn.try_lane(s.lane))
      from (select distinct l.lane from unnest(_states, _lanes) l(state, lane) where l.state = 3) s), true));
end $$;
