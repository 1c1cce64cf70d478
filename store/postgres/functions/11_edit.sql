-- What store/rules decides is read and written here: the engine's Source, and how it applies changes. First come the
-- locks, then what is known of the tasks, then what becomes of them.

-- Locks tasks at their places, and everything else that a change of them may touch, in the order of 03_lock.sql. Nobody
-- else can change them until the transaction ends. A task that moved on before it was locked is locked at its new
-- place, without waiting. _to is the lane of a move.
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
    perform pg_current_xact_id(); -- so that no parent is pruned that it takes for unfinished
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

-- The same without waiting. Returns false if a lock is held.
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
  if _queues is not null and not tusk_fn.try_keys(_queues, _names) then
    return false;
  end if;
  _mine := array(
    select u.id from unnest(_ids) u(id)
    cross join lateral (select from tusk.waiting w where w.id = u.id for update skip locked) w);
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

-- What the rules need to know about tasks. Needs are looked up only if the ledger has ever had any. Run times are
-- capped, because a program cannot hold infinity. Of a task in another ledger only the state is known; its sign is
-- changed.
create function tusk_fn.known_of(_ids uuid[]) returns table (
  id uuid, state smallint, lane bigint, queue text, tenant text, key text, attempt int, crashes int,
  run_at timestamptz, claimed_at timestamptz, finished_at timestamptz, reason text, worker uuid, token uuid,
  turn boolean, partition text, has_turn boolean, open int, needs boolean, needed boolean, awaits boolean,
  stopping boolean, stop_reason text)
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
#variable_conflict use_column
declare
  _linked boolean := pg_relation_size('tusk.need') > 0 or pg_relation_size('tusk.open_need') > 0;
begin
  return query
  select s.id, s.state, s.lane, tusk_fn.queue_of(s.lane), coalesce(s.tenant, ''), coalesce(s.key, ''),
    s.attempt, s.crashes, greatest(least(s.run_at, '9999-12-31Z'), '0001-01-02Z'), s.claimed_at, s.finished_at,
    s.reason, s.worker, s.token,
    s.turn is true, coalesce(s.partition, ''),
    s.turn is true and s.state <> 2 and s.id in (select h.id from tusk.turn h),
    case when _linked and s.state = 2 then (
      select count(*)::int from tusk.open_need o where o.child = s.id) else 0 end,
    _linked and exists (select from tusk.need n where n.child = s.id),
    _linked and exists (select from tusk.open_need o where o.parent = s.id),
    s.state = 2 and s.key is not null and exists (
      select from tusk.key k
      where k.queue = s.lane >> 16 and k.key = tusk_fn.tenant_key(s.tenant, s.key) and k.awaiting = s.id),
    x.reason is not null, coalesce(x.reason, '')
  from unnest(_ids) u(id)
  cross join lateral (select * from tusk_fn.state_of(u.id) limit 1) s
  left join lateral (
    select y.reason from tusk.stop y where s.state = 4 and y.id = s.id and y.token = s.token) x on true;
  if pg_relation_size('tusk.far') > 0 then
    return query
    select f.id, (-f.state)::smallint, 0::bigint, null::text, '', '', 0, 0, '0001-01-02Z'::timestamptz,
      null::timestamptz, null::timestamptz, '', null::uuid, null::uuid, false, '', false, 0, false, false, false,
      false, ''
    from tusk.far f
    where f.id = any(_ids) and f.state > 0 and not exists (select from tusk_fn.state_of(f.id));
  end if;
end $$;

-- The open needs of other tasks for these, in the order in which those were enqueued. Tasks that somebody else holds
-- are left out: their needs stay in doubt.
create function tusk_fn.children_to_tell(_ids uuid[]) returns table (child uuid, parent uuid, policy smallint)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
#variable_conflict use_column
declare
  _mine uuid[] := array(
    select u.id from (select distinct u.id from unnest(tusk_fn.children_of(_ids)) u(id) order by 1) u
    cross join lateral (select from tusk.waiting w where w.id = u.id for update skip locked) w);
begin
  return query
  select w.id, o.parent, o.policy from unnest(_mine) u(id)
  cross join lateral (select x.* from tusk.waiting x where x.id = u.id offset 0) w
  cross join lateral (select x.parent, x.policy from tusk.open_need x where x.child = w.id offset 0) o
  where o.parent = any(_ids)
  order by w.enqueued_at, w.n;
end $$;

-- Removes plainly completed tasks from their flushes, which are locked. The attempts of the tasks in _again, which run
-- once more, go into their histories.
create function tusk_fn.take_completed(_ids uuid[], _again uuid[]) returns setof tusk.waiting language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
begin
  return query
  with f as materialized (
    select t.*, o.at, o.worker, o.claimed_at as began, o.ended_at
    from unnest(_ids) u(id)
    cross join lateral (select * from tusk_fn.rows_of(u.id) r order by r.xid desc, r.n desc limit 1) t
    cross join lateral tusk_fn.flush_of(t.lane, t.xid, u.id) o),
  history as (
    insert into tusk.attempt (id, number, worker, started_at, ended_at, state, error, trace, fingerprint)
    select f.id, f.attempt + 1, f.worker, f.began, f.ended_at, 6, '', '', '' from f where f.id = any(_again)),
  cut as (
    update tusk.outcome o
    set firsts = array(select i.id from tusk_fn.ids_of(o.firsts, o.counts) i where i.id <> all(x.ids) order by i.place),
      counts = null,
      ago = case when o.ago is not null then
        array(
          select o.ago[i.place] from tusk_fn.ids_of(o.firsts, o.counts) i
          where i.id <> all(x.ids) order by i.place) end,
      keyed = o.keyed - x.keyed
    from (select f.at, array_agg(f.id) as ids, count(f.key) as keyed from f group by f.at) x
    where o.ctid = x.at)
  select f.id, 6::smallint, f.lane, coalesce(f.run_at, f.enqueued_at), f.n, f.enqueued_at, f.attempt, f.crashes,
    f.kind, f.args, f.expires_at, f.began, f.tenant, f.key, f.tags, f.settings, f.failure, f.workflow, f.turn,
    f.partition, null::timestamptz
  from f;
end $$;

-- Deletes available tasks from the log. Their lanes are locked. Rows that a lane's tally counts count as having left
-- the lane.
create function tusk_fn.take_available(_ids uuid[], _lanes bigint[]) returns setof tusk.waiting language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
begin
  perform tusk_fn.unpack(_ids, _lanes);
  return query
  with gone as (
    delete from tusk.log t
    where t.id = any(_ids) and t.packed is null and t.lane = any(_lanes) and tusk_fn.unclaimed(t.lane, t.xid, t.n)
    returning t.*),
  left_lane as (
    insert into tusk.lane_position (lane, no, done, win, at_xid, at_n, claimed)
    select g.lane, coalesce(p.no, 0) + 1, coalesce(p.done, '1:1:'), p.win, coalesce(p.at_xid, '0'), coalesce(p.at_n, 0),
      coalesce(p.claimed, 0) + g.rows
    from (
      select x.lane, count(*) as rows from gone x join tusk.lane_tally a on a.lane = x.lane
      where pg_visible_in_snapshot(x.xid, a.seen) group by x.lane) g
    left join lateral (select * from tusk.lane_position q where q.lane = g.lane order by q.no desc limit 1) p on true)
  select g.id, 3::smallint, g.lane, coalesce(g.run_at, g.enqueued_at), g.n, g.enqueued_at, g.attempt, g.crashes,
    g.kind, g.args, g.expires_at, g.claimed_at, g.tenant, g.key, g.tags, g.settings, g.failure, g.workflow, g.turn,
    g.partition, null::timestamptz
  from gone g;
end $$;

-- Removes tasks, all of them locked, from their places, which follow from the states in _was. _lanes are the lanes of
-- available tasks; _again are the completed tasks that run once more.
create function tusk_fn.take_tasks(_ids uuid[], _was smallint[], _lanes bigint[], _again uuid[])
returns setof tusk.waiting language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  _waiting uuid[] := array(select u.id from unnest(_ids, _was) u(id, was) where u.was in (1, 2, 5));
  _ended   uuid[] := array(select u.id from unnest(_ids, _was) u(id, was) where u.was >= 6);
  _dead    uuid[] := array(
    select u.id from unnest(_ended) u(id)
    cross join lateral (select from tusk.dead d where d.id = u.id offset 0) d);
begin
  return query delete from tusk.waiting w
    where w.ctid = any(array(
      select x.at from unnest(_waiting) u(id)
      cross join lateral (select w.ctid as at from tusk.waiting w where w.id = u.id offset 0) x))
    returning w.*;
  return query delete from tusk.dead d
    where d.ctid = any(array(
      select x.at from unnest(_dead) u(id)
      cross join lateral (select d.ctid as at from tusk.dead d where d.id = u.id offset 0) x))
    returning d.id, d.state, d.lane, d.run_at, 0::bigint, d.enqueued_at, d.attempt, d.crashes, d.kind, d.args,
      d.expires_at, d.claimed_at, d.tenant, d.key, d.tags, d.settings, d.failure, d.workflow, d.turn, d.partition,
      null::timestamptz;
  if cardinality(_lanes) > 0 then
    return query select * from tusk_fn.take_available(
      array(select u.id from unnest(_ids, _was) u(id, was) where u.was = 3), _lanes);
  end if;
  if cardinality(_dead) < cardinality(_ended) then
    return query select * from tusk_fn.take_completed(
      array(select u.id from unnest(_ended) u(id) where u.id <> all(_dead)), _again);
  end if;
end $$;

-- Moves tasks from their places to new ones, in order. A task whose new state is 0 is deleted. Of a task's rows in the
-- log, the one of the latest transaction counts: if this transaction began before the row of the latest attempt was
-- written, the task is left to the next admission. Returns the tasks that were left.
create function tusk_fn.put_tasks(_changes json, _lanes bigint[]) returns uuid[] language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  _early uuid[];
begin
  with c as materialized (
    select * from json_to_recordset(_changes) as c(id uuid, was smallint, place int, state smallint, lane bigint,
      run_at timestamptz, attempt int, crashes int, reason text, finished_at timestamptz, line timestamptz)),
  w as materialized (
    select x.*, nextval('tusk.task_n') as n,
      x.state = 3 and x.claimed_at is not null
        and exists (select from tusk_fn.rows_of(x.id) y where y.xid > pg_current_xact_id()) as early
    from (
      select c.*, t.enqueued_at, t.kind, t.args, t.expires_at, t.claimed_at, t.tenant, t.key, t.tags, t.settings,
        t.failure, t.workflow, t.turn, t.partition
      from tusk_fn.take_tasks(array(select c.id from c order by c.place, c.id),
        array(select c.was from c order by c.place, c.id), _lanes, array(select c.id from c where c.state > 0)) t
      join c on c.id = t.id
      order by c.place) x),
  logged as (
    insert into tusk.log (lane, n, id, enqueued_at, attempt, crashes, kind, args, run_at, expires_at, claimed_at,
      tenant, key, tags, settings, failure, workflow, turn, partition)
    select w.lane, w.n, w.id, w.enqueued_at, w.attempt, w.crashes, w.kind, w.args, w.run_at, w.expires_at, w.claimed_at,
      w.tenant, w.key, w.tags, w.settings, w.failure, w.workflow, w.turn, w.partition
    from w where w.state = 3 and not w.early order by w.n),
  kept as (
    insert into tusk.waiting (id, state, lane, run_at, n, enqueued_at, attempt, crashes, kind, args, expires_at,
      claimed_at, tenant, key, tags, settings, failure, workflow, turn, partition, line)
    select w.id, case when w.early then 1 else w.state end, w.lane, w.run_at, w.n, w.enqueued_at, w.attempt, w.crashes,
      w.kind, w.args, w.expires_at, w.claimed_at, w.tenant, w.key, w.tags, w.settings, w.failure, w.workflow, w.turn,
      w.partition, w.line
    from w where w.state in (1, 2, 5) or w.early),
  ended as (
    insert into tusk.dead (id, state, lane, run_at, enqueued_at, attempt, crashes, kind, args, expires_at, claimed_at,
      tenant, key, tags, settings, failure, reason, finished_at, workflow, turn, partition)
    select w.id, w.state, w.lane, w.run_at, w.enqueued_at, w.attempt, w.crashes, w.kind, w.args, w.expires_at,
      w.claimed_at, w.tenant, w.key, w.tags, w.settings, w.failure, w.reason, w.finished_at, w.workflow, w.turn,
      w.partition
    from w where w.state >= 6)
  select array_agg(w.id) into _early from w where w.early;
  return coalesce(_early, '{}');
end $$;

-- Writes keys. They are locked unless they are new; if somebody else has stored a new one meanwhile, all starts over.
create function tusk_fn.write_keys(_queues bigint[], _keys text[], _holders uuid[], _awaiting uuid[], _ended uuid[],
  _sources timestamptz[], _tasks bigint[], _new boolean[]) returns void language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
#variable_conflict use_column
declare
  _made int;
begin
  insert into tusk.key (queue, key, holder, awaiting, ended, source_at, tasks)
  select k.queue, k.key, k.holder, k.awaiting, k.ended, k.source_at, k.tasks
  from unnest(_queues, _keys, _holders, _awaiting, _ended, _sources, _tasks, _new)
    k(queue, key, holder, awaiting, ended, source_at, tasks, fresh)
  where k.fresh order by k.queue, k.key collate "C"
  on conflict do nothing;
  get diagnostics _made = row_count;
  if _made < (select count(*) from unnest(_new) f where f) then
    perform tusk_fn.begin_anew();
  end if;
  update tusk.key y set holder = k.holder, awaiting = k.awaiting, ended = k.ended, source_at = k.source_at,
    tasks = k.tasks
  from unnest(_queues, _keys, _holders, _awaiting, _ended, _sources, _tasks, _new)
    k(queue, key, holder, awaiting, ended, source_at, tasks, fresh)
  cross join lateral (select x.ctid as at from tusk.key x where x.queue = k.queue and x.key = k.key offset 0) x
  where y.ctid = x.at and not k.fresh and k.tasks > 0;
  delete from tusk.key y
  where y.ctid = any(array(
    select x.at from unnest(_queues, _keys, _tasks) k(queue, key, tasks)
    cross join lateral (select x.ctid as at from tusk.key x where x.queue = k.queue and x.key = k.key offset 0) x
    where k.tasks <= 0));
end $$;

-- Replaces the needs of tasks; _of names the task of each need. Open needs are in doubt until their parent was seen
-- after this commit.
create function tusk_fn.write_needs(_children uuid[],
  _of uuid[], _parents uuid[], _policies smallint[], _open boolean[])
returns void language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
begin
  perform nextval('tusk.beside');
  delete from tusk.need x where x.child = any(_children);
  delete from tusk.open_need x where x.child = any(_children);
  insert into tusk.need (child, place, parent, policy)
  select n.child, n.place, n.parent, n.policy
  from unnest(_of, _parents, _policies) with ordinality n(child, parent, policy, place);
  insert into tusk.open_need (parent, child, policy)
  select n.parent, n.child, n.policy
  from unnest(_of, _parents, _policies, _open) n(child, parent, policy, open) where n.open;
  insert into tusk.doubt (child, parent)
  select n.child, n.parent
  from unnest(_of, _parents, _open) n(child, parent, open) where n.open order by n.child, n.parent
  on conflict (child, parent) do update set n = excluded.n;
end $$;

-- Forgets the open needs, and the doubts, of tasks that no longer wait.
create function tusk_fn.close_needs(_children uuid[]) returns void language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
begin
  delete from tusk.open_need x where x.child = any(_children);
  perform 1 from tusk.doubt x where x.child = any(_children) order by x.child, x.parent for update;
  delete from tusk.doubt x where x.child = any(_children);
end $$;
