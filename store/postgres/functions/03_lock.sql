-- Every transaction takes locks in this order, so that no two wait for each other: leases, by token and lane; keys, by
-- queue and tenant's key; rows of waiting tasks by id, then of dead ones; rows of outcomes; lanes. A transaction that
-- needs several locks of one kind takes them here, all at once. A lock that it finds out about later is only tried: if
-- it is held, the work is left for later or the transaction starts over. Other rows (a lease for update, doubts, groups
-- of errors) are locked last, in an order of their own, by transactions that wait for nothing afterwards.

-- Locks the keys that exist. Everywhere in this file a key is what tenant_key returns.
create function tusk_fn.lock_keys(_queues bigint[], _keys text[]) returns void language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan
as $$
begin
  perform 1
  from (select distinct q.queue, q.key collate "C" as key from unnest(_queues, _keys) q(queue, key) order by 1, 2) q
  cross join lateral (select from tusk.key y where y.queue = q.queue and y.key = q.key for update) y;
end $$;

-- Like lock_keys, for callers that must not wait for a user's transaction, which may hold a key for as long as it is
-- open. It waits briefly for keys that others hold. While it waits it holds no key that comes later in the order: if
-- several keys are requested, it first releases those that it has locked. Returns the places of the keys that others
-- hold. If there are any, not all keys are locked.
create function tusk_fn.lock_free_keys(_queues bigint[], _keys text[]) returns int[] language plpgsql as $$
declare
  _patience text;
  _held     int[];
begin
  if cardinality(_keys) = 1 then
    _held := tusk_fn.try_keys(_queues, _keys);
  else
    begin
      _held := tusk_fn.try_keys(_queues, _keys);
      if _held <> '{}' then
        raise lock_not_available;
      end if;
    exception when lock_not_available then
    end;
  end if;
  if _held <> '{}' then
    _patience := current_setting('lock_timeout');
    begin
      perform set_config('lock_timeout', '50ms', true);
      perform tusk_fn.lock_keys(_queues, _keys);
      perform set_config('lock_timeout', _patience, true);
      return '{}';
    exception when lock_not_available then
      _held := tusk_fn.try_keys(_queues, _keys);
    end;
  end if;
  return _held;
end $$;

-- Like lock_free_keys, without waiting: locks the keys that are free, in order.
create function tusk_fn.try_keys(_queues bigint[], _keys text[]) returns int[] language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan
as $$
declare
  _mine int[] := array(
    select q.place
    from (select * from unnest(_queues, _keys) with ordinality q(queue, key, place) order by queue, key collate "C") q
    cross join lateral (select from tusk.key y where y.queue = q.queue and y.key = q.key for update skip locked) y);
begin
  if cardinality(_mine) = cardinality(_keys) then
    return '{}';
  end if;
  return array(
    select q.place from unnest(_queues, _keys) with ordinality q(queue, key, place)
    cross join lateral (select from tusk.key y where y.queue = q.queue and y.key = q.key offset 0) y
    where q.place <> all(_mine));
end $$;

-- The tasks that hold keys, and the tasks that wait for them to end.
create function tusk_fn.tasks_of_keys(_queues bigint[], _keys text[]) returns uuid[] language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan
as $$
begin
  return array(
    select u.id from unnest(_queues, _keys) q(queue, key)
    cross join lateral (
      select y.holder, y.awaiting from tusk.key y where y.queue = q.queue and y.key = q.key offset 0) y
    cross join unnest(array[y.holder, y.awaiting]) u(id)
    where u.id is not null);
end $$;

-- The tasks that wait for others to end.
create function tusk_fn.children_of(_ids uuid[]) returns uuid[] language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan
as $$
begin
  if pg_relation_size('tusk.open_need') = 0 then
    return '{}';
  end if;
  return array(
    select distinct o.child from unnest(_ids) u(id)
    cross join lateral (select x.child from tusk.open_need x where x.parent = u.id offset 0) o);
end $$;

-- Locks the rows of waiting tasks, in order: those in _own, and also _children, unless a transaction holds one of these
-- for long.
create function tusk_fn.lock_waiting(_own uuid[], _children uuid[]) returns void language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan
as $$
declare
  _patience text;
begin
  if cardinality(_children) > 0 then
    _patience := current_setting('lock_timeout');
    begin
      perform set_config('lock_timeout', '100ms', true);
      perform 1 from (select distinct u.id from unnest(_own || _children) u(id) order by 1) u
      cross join lateral (select from tusk.unready x where x.id = u.id for update) x;
      perform set_config('lock_timeout', _patience, true);
      return;
    exception when lock_not_available then
    end;
  end if;
  perform 1 from (select distinct u.id from unnest(_own) u(id) order by 1) u
  cross join lateral (select from tusk.unready x where x.id = u.id for update) x;
end $$;

-- Locks what the ends of attempts will change: their leases, their keys, and the rows of tasks that wait for either.
-- The lock on a lease does not exclude users' transactions that have ended some of its tasks. Returns the places of
-- keys that a user's transaction holds.
create function tusk_fn.lock_ends(_tokens uuid[], _lanes bigint[], _end_keys tusk_fn.end_key[], _firsts uuid[],
  _counts int[]) returns int[]
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan
as $$
declare
  _children uuid[] := '{}';
  _own      uuid[] := '{}';
  _held     int[] := '{}';
  _queues   bigint[] := array(select k.queue from unnest(_end_keys) k);
  _keys     text[] := array(select k.key from unnest(_end_keys) k);
begin
  if pg_relation_size('tusk.open_need') > 0 then
    _children := tusk_fn.children_of(array(select i.id from tusk_fn.ids_of(_firsts, _counts) i));
  end if;
  if cardinality(_tokens) > 1 or cardinality(_keys) > 0 or cardinality(_children) > 0 then
    perform 1 from tusk.lease x join unnest(_tokens, _lanes) s(token, lane) on x.token = s.token and x.lane = s.lane
    where x.token = any(_tokens) -- without this, the planner may read the whole index, past all leases that have ended
    order by x.token, x.lane for no key update of x;
  end if;
  if cardinality(_keys) > 0 then
    _held := tusk_fn.lock_free_keys(_queues, _keys);
    if cardinality(_held) > 0 then
      return _held;
    end if;
    _own := tusk_fn.tasks_of_keys(_queues, _keys);
  end if;
  if cardinality(_own) > 0 or cardinality(_children) > 0 then
    perform tusk_fn.lock_waiting(_own, _children);
  end if;
  return _held;
end $$;

-- Fails so that the caller starts over, because the holder of a lock may be waiting for this transaction.
create function tusk_fn.begin_anew() returns void language plpgsql set jit = off as $$
begin
  raise exception 'somebody else has just locked the same' using errcode = '40001';
end $$;
