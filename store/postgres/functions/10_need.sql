-- A task that needs others is pending until they have ended. Each open need is a row. A transaction that ends a parent
-- locks it and then reads these rows. It may miss a child that is enqueued at the same moment, so each need of a new
-- child is in doubt at first. The doubt is deleted once the parent was seen, after the child's commit, at a place where
-- nobody was ending it.

-- The states of those tasks that exist. Tasks of other ledgers that have not ended have the state 9.
create function tusk_fn.states_of(_ids uuid[]) returns table (id uuid, state smallint, token uuid, lane bigint)
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
  set jit = off
as $$
#variable_conflict use_column
begin
  return query
  select x.id, x.state, x.token, x.lane from unnest(_ids) u(id) cross join lateral tusk_fn.state_of(u.id) x;
  if pg_relation_size('tusk.far') > 0 then
    return query
    select f.id, f.state, null::uuid, null::bigint from tusk.far f
    where f.id = any(_ids) and f.state > 0 and not exists (select from tusk_fn.state_of(f.id));
  end if;
end $$;

-- Judges needs before their child is stored. A need for a parent of the same call is open, since nobody else can see
-- the parent yet. If that parent has a key, it may not be stored at all, so the need is in doubt. The transaction draws
-- its xid before it looks, so that a parent that it takes for unfinished is not pruned before the transaction has
-- ended. Policies have the numbers of package store. A task that does not exist counts as deleted.
create function tusk_fn.judge_needs(_needs tusk_fn.new_need[], _ids uuid[], _keys text[])
returns table (k int, open boolean, doubt boolean) language plpgsql as $$
begin
  perform pg_current_xact_id();
  return query with n as materialized (
    select n.ordinality::int as k, n.parent, n.policy, i.place::int
    from unnest(_needs) with ordinality n
    left join unnest(_ids) with ordinality i(id, place) on i.id = n.parent),
  s as materialized (
    select x.id, max(x.state) as state from tusk_fn.states_of(array(select distinct n.parent from n
      where n.place is null)) x group by x.id)
  select n.k, n.place is not null or not (
      coalesce(s.state, 0) = 6 or n.policy = 1 and coalesce(s.state, 0) in (0, 7, 8)), -- 0 if it does not exist
    n.place is null or _keys[n.place] is not null
  from n left join s on s.id = n.parent;
end $$;

-- Stores tasks as put does, with their needs.
create function tusk_fn.put_needing(_tasks tusk_fn.new_task[], _needs tusk_fn.new_need[])
returns table (place int, id uuid, result smallint)
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
  _ids     uuid[] := array(select x.id from unnest(_tasks) with ordinality x order by x.ordinality);
  _open    boolean[];
  _doubt   boolean[];
  _pending boolean[];
  _stored  boolean[];
  r        record;
begin
  perform tusk_fn.need_read_committed();
  select array_agg(j.open order by j.k), array_agg(j.doubt order by j.k) into _open, _doubt
  from tusk_fn.judge_needs(_needs, _ids,
    array(select x.key from unnest(_tasks) with ordinality x order by x.ordinality)) j;
  _pending := array(
    select coalesce(o.open, false) from generate_subscripts(_ids, 1) t(place)
    left join (select n.child, bool_or(_open[n.ordinality]) as open from unnest(_needs) with ordinality n
      group by 1) o on o.child = t.place
    order by t.place);
  for r in select p.place, p.id, p.result from tusk_fn.put(_tasks, _pending) p loop
    _stored[r.place] := r.result in (1, 4) and r.id = _ids[r.place];
    return query select r.place, r.id, r.result;
  end loop;
  insert into tusk.need (child, place, parent, policy)
  select _ids[n.child], n.ordinality, n.parent, n.policy from unnest(_needs) with ordinality n where _stored[n.child];
  perform nextval('tusk.beside');
  insert into tusk.open_need (parent, child, policy)
  select n.parent, _ids[n.child], n.policy from unnest(_needs) with ordinality n
  where _stored[n.child] and _open[n.ordinality]
  order by n.ordinality
  on conflict do nothing;
  insert into tusk.doubt (child, parent)
  select _ids[n.child], n.parent from unnest(_needs) with ordinality n
  where _stored[n.child] and _open[n.ordinality] and _doubt[n.ordinality]
  order by n.ordinality
  on conflict do nothing;
end $$;

-- Tells the children of tasks that their parents have ended. All of _ids have ended, except those of _odd_ids that run
-- again. The function waits for no child: callers that can wait have locked the children before. Returns the names to
-- ring.
create function tusk_fn.tell_ended(_ids uuid[], _odd_ids uuid[]) returns setof text language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  _parents uuid[];
  _states  smallint[];
begin
  select array_agg(x.id), array_agg(x.state) into _parents, _states
  from (
    select u as id, case when u = any(_odd_ids) then (select d.state from tusk.dead d where d.id = u)
      else 6 end as state
    from unnest(_ids) u
    where (select true from tusk.open_need o where o.parent = u limit 1)) x
  where x.state is not null;
  if _parents is not null then
    return query select * from tusk_fn.set_free(
      array(select x.id from unnest(_parents, _states) x(id, state) where x.state = 6),
      array(select x.id from unnest(_parents, _states) x(id, state) where x.state <> 6));
    perform tusk_fn.doubt_children(_parents, _states);
  end if;
end $$;

-- Records doubts about the needs that remain for tasks that have ended. A need remains if somebody holds the child, if
-- the child was stored in the meantime, or if the child must be cancelled because the task failed or is gone. The
-- function waits for a doubt that exists, because a transaction that is about to delete it may have seen the task
-- before it was claimed. Doubts are locked by child and parent.
create function tusk_fn.doubt_children(_ids uuid[], _states smallint[]) returns void language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
begin
  if pg_relation_size('tusk.open_need') = 0 then
    return;
  end if;
  insert into tusk.doubt (child, parent)
  select distinct o.child, x.id
  from unnest(_ids, _states) x(id, state)
  cross join lateral (select y.child, y.policy from tusk.open_need y where y.parent = x.id offset 0) o
  where x.state in (0, 6) or o.policy in (0, 1)
  order by o.child, x.id
  on conflict (child, parent) do update set n = excluded.n;
end $$;

-- Meets needs, and sets the children free that have no other open need, except those that somebody else holds. If the
-- last two parents end at the same time, each transaction locks the child before it looks for other needs. Children
-- that are stored in the meantime are in doubt. Returns the names to ring.
create function tusk_fn.set_free(_completed uuid[], _failed uuid[]) returns setof text language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  _now      timestamptz;
  _children uuid[] := tusk_fn.children_of(_completed || _failed);
  _rings    text[] := '{}';
  w         tusk.waiting;
begin
  if cardinality(_children) = 0 then
    return;
  end if;
  _children := array(
    select u.id from (select distinct u.id from unnest(_children) u(id) order by 1) u
    cross join lateral (select from tusk.waiting x where x.id = u.id for update skip locked) x);
  delete from tusk.open_need o where o.ctid = any(array(
    select x.at from unnest(_completed || _failed) with ordinality u(id, place)
    cross join lateral (
      select x.ctid as at, x.child, x.policy from tusk.open_need x where x.parent = u.id offset 0) x
    where (x.child in (select c.id from unnest(_children) c(id))) is true -- hashed, however many there are
      and (u.place <= cardinality(_completed) or x.policy = 1)));
  _now := clock_timestamp();
  for w in
    select x.* from unnest(_children) u(id)
    cross join lateral (select x.* from tusk.waiting x where x.id = u.id offset 0) x
    where x.state = 2 and x.line is null
      and (select true from tusk.open_need o where o.child = x.id limit 1) is null
      and (select true from tusk.key k where k.queue = x.lane >> 16 and k.key = tusk_fn.tenant_key(x.tenant, x.key)
        and k.awaiting = x.id) is null
    order by x.enqueued_at, x.n
  loop
    delete from tusk.waiting x where x.id = w.id;
    w.state := 1; w.line := _now; w.n := nextval('tusk.task_n'); w.run_at := greatest(w.run_at, _now);
    _rings := _rings || tusk_fn.place(w);
  end loop;
  return query select distinct r from unnest(_rings) r where r is not null;
end $$;

-- Settles doubts, given by their numbers. A transaction that ends a parent has locked it at its place before it looked
-- for children: its lease, its row among the waiting tasks, or, by deleting it, its row in the log. So parents are
-- locked here too, and read in a new statement. If somebody else holds the parent or the child, the doubt stays. So
-- does the doubt about a failure that must cancel the child.
create function tusk_fn.settle(_ns bigint[]) returns setof text language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  _parents   uuid[] := array(select distinct d.parent from tusk.doubt d where d.n = any(_ns));
  _tokens    uuid[];
  _lanes     bigint[];
  _leases    tid[];
  _waiting   uuid[];
  _log       uuid[];
  _decided   uuid[];
  _completed uuid[];
  _failed    uuid[];
  _gone      uuid[];
  _dead      uuid[];
begin
  perform tusk_fn.need_read_committed();
  select array_agg(s.token) filter (where s.state = 4), array_agg(s.lane) filter (where s.state = 4),
    array_agg(s.id) filter (where s.state in (1, 2, 5)), array_agg(s.id) filter (where s.state = 3)
  into _tokens, _lanes, _waiting, _log
  from tusk_fn.states_of(_parents) s;
  _leases := array(
    select x.ctid from tusk.lease x where x.token = any(_tokens) and x.lane = any(_lanes) order by x.token, x.lane
      for update skip locked);
  _waiting := array(
    select u.id from (select distinct u.id from unnest(_waiting) u(id) order by 1) u
    cross join lateral (select from tusk.unready x where x.id = u.id for key share skip locked) x);
  _log := array(
    select x.id from tusk.log x where x.id = any(_log) and x.packed is null and tusk_fn.unclaimed(x.lane, x.xid, x.n)
      order by x.id for key share skip locked)
    || array(
      select u.id
      from unnest(_log) u(id)
      join tusk.log x on x.packed is not null and x.id between tusk_fn.block_of(u.id) and u.id
        and tusk_fn.ids_between(x.id, u.id) < cardinality(x.packed)
      where tusk_fn.unclaimed(x.lane, x.xid, x.n + tusk_fn.ids_between(x.id, u.id) + 1)
      order by u.id for key share of x skip locked);
  _dead := array( -- of one that is about to be deleted the doubt stays
    select x.id from tusk.dead x where x.id = any(_parents) order by x.id for key share skip locked);
  with p as materialized (
    select u.id, s.state, (select x.ctid from tusk.lease x where x.token = s.token and x.lane = s.lane) as at
    from unnest(_parents) u(id)
    left join tusk_fn.states_of(_parents) s on s.id = u.id)
  select array_agg(p.id) filter (where case
      when p.state = 4 then p.at = any(_leases)
      when p.state = 3 then p.id = any(_log)
      when p.state in (1, 2, 5) then p.id = any(_waiting)
      else p.id = any(_dead) or not exists (select from tusk.dead x where x.id = p.id) end),
    coalesce(array_agg(p.id) filter (where p.state = 6), '{}'),
    coalesce(array_agg(p.id) filter (where p.state is null or p.state in (7, 8)), '{}'),
    array_agg(p.id) filter (where p.state is null)
  into _decided, _completed, _failed, _gone
  from p;
  return query select * from tusk_fn.set_free(_completed, _failed);
  delete from tusk.doubt d
  where d.ctid = any(array(select x.ctid from tusk.doubt x where x.n = any(_ns) and x.parent = any(_decided)
    for update skip locked))
    and (select true from tusk.open_need o
      where o.parent = d.parent and o.child = d.child and (d.parent = any(_completed) or d.parent = any(_gone)
        or d.parent = any(_failed) and o.policy in (0, 1)) limit 1) is null;
end $$;

-- Locks tasks that the leader is about to cancel, and what their end touches. It does not wait, because a user's
-- transaction may hold a lock for long.
create function tusk_fn.lock_doomed(_term bigint, _ids uuid[]) returns void language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  _was record;
  _is  record;
begin
  perform tusk_fn.need_read_committed();
  perform tusk_fn.hold_lead(_term);
  perform set_config('lock_timeout', '50ms', true), set_config('idle_in_transaction_session_timeout', '10s', true);
  select * into _was from tusk_fn.spots_of(_ids);
  if tusk_fn.try_spots(_ids, _was.states, _was.lanes, _was.tokens, _was.keys, 1::smallint) then
    select * into _is from tusk_fn.spots_of(_ids);
  end if;
  if _is is distinct from _was then
    raise lock_not_available using message = 'somebody else holds a task that needs what has failed';
  end if;
end $$;

-- Ends attempts as finish does, and stores the tasks and needs that come with their outcomes. A task that would run
-- again may have to be cancelled instead. Then nothing is written, and the task is returned without a token. If no
-- other attempt ends in the call, the task is cancelled and its new tasks and needs are dropped.
create function tusk_fn.finish_more(f tusk_fn.flush, _odd tusk_fn.odd_end[], _keys tusk_fn.end_key[],
  _tasks tusk_fn.new_task[], _needs tusk_fn.new_need[], _more tusk_fn.extras)
returns table (token uuid, id uuid, held boolean, queue text) language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
  set lock_timeout = '300ms' as $$
#variable_conflict use_column
declare
  _held_keys   int[];
  _lost_tokens uuid[];
  _lost_ids    uuid[];
  _held        boolean[];
  _queues      text[];
  _off         uuid[];
begin
  perform tusk_fn.need_read_committed();
  _held_keys := tusk_fn.lock_ends(f.tokens, f.lanes,
    _keys || array(select row(g.queue, g.key, null)::tusk_fn.end_key from unnest(_more.going) g)
      || array(
        select row(x.lane >> 16, tusk_fn.tenant_key(x.tenant, x.key), null)::tusk_fn.end_key
        from unnest(_tasks) x where x.key is not null), f.firsts, f.counts);
  if cardinality(_held_keys) > 0 then
    return query select null::uuid, null::uuid, true, h::text from unnest(_held_keys) h;
    return;
  end if;
  _off := tusk_fn.called_off(_more.going);
  if cardinality(_off) > 0 and f.ends[cardinality(f.ends)] > 1 then
    return query select null::uuid, o, null::boolean, null::text from unnest(_off) o;
    return;
  elsif cardinality(_tasks) > 0 and cardinality(_off) = 0 then
    -- Before the ends, because a new task with the key of one that ends has to wait for that end.
    if exists (select from unnest(_tasks) x where x.key is not null) then
      -- A key that an open transaction of a user has stored cannot be seen, only waited for.
      perform set_config('lock_timeout', '50ms', true);
    end if;
    perform tusk_fn.put_needing(_tasks, _needs);
    perform set_config('lock_timeout', '300ms', true);
  end if;
  select array_agg(x.token), array_agg(x.id), array_agg(x.held), array_agg(x.queue) into _lost_tokens, _lost_ids,
    _held, _queues
  from tusk_fn.finish(f, _odd, _keys, true) x;
  if exists (select from unnest(_lost_ids) l where l is not null) then
    raise exception 'lost' using errcode = 'TK008';
  end if;
  perform tusk_fn.yield(_more.yield, _more.keep) where cardinality(_more.yield) > 0;
  return query select null::uuid, null::uuid, null::boolean, q from unnest(_queues) q;
  return query select null::uuid, null::uuid, null::boolean, q from tusk_fn.await_needs(_more, _tasks) q;
exception when sqlstate 'TK008' then
  return query select l.token, l.id, l.held, null::text from unnest(_lost_tokens, _lost_ids, _held) l(token, id, held);
end $$;

-- Of tasks that would run again, returns those that will be cancelled instead, because that was requested or because
-- another task waits for their key. It locks the keys.
create function tusk_fn.called_off(_going tusk_fn.goer[]) returns uuid[] language plpgsql as $$
begin
  if cardinality(_going) = 0 then
    return '{}';
  end if;
  perform 1 from tusk.key y
  where (y.queue, y.key) in (select g.queue, g.key from unnest(_going) g where g.key is not null)
  order by y.queue, y.key for update;
  return array(
    select g.id from unnest(_going) g
    where exists (select from tusk.stop x where x.id = g.id and x.token = g.token)
      or exists (select from tusk.key y where y.queue = g.queue and y.key = g.key and y.awaiting is not null));
end $$;

-- Gives back turns, except those in _keep whose tasks will run again.
create function tusk_fn.yield(_ids uuid[], _keep uuid[]) returns void language sql volatile as $$
  insert into tusk.held (back, ids)
  select true, x.ids
  from (
    select array(
      select u.id from unnest(_ids) u(id)
      where not (u.id = any(_keep) and not exists (select from tusk.dead d where d.id = u.id))) as ids) x
  where cardinality(x.ids) > 0
$$;

-- Makes tasks that have just become pending wait for what they need. Returns the names to ring, because some of them
-- need nothing.
create function tusk_fn.await_needs(_more tusk_fn.extras, _tasks tusk_fn.new_task[]) returns setof text
language plpgsql as $$
declare
  _fresh uuid[] := array(select x.id from unnest(_tasks) x where x.key is null);
  _needs tusk_fn.new_need[];
  _rings text[] := '{}';
  w      tusk.waiting;
begin
  for w in
    select x.* from unnest(_more.children) with ordinality c(id, place)
    join tusk.waiting x on x.id = c.id and x.state = 2
    order by c.place
  loop
    _needs := array(
      select row(n.child, n.parent, n.policy)::tusk_fn.new_need
      from unnest(_more.needs) with ordinality n
      where _more.children[n.child] = w.id order by n.ordinality);
    delete from tusk.need x where x.child = w.id;
    delete from tusk.open_need x where x.child = w.id;
    insert into tusk.need (child, place, parent, policy)
    select w.id, n.ordinality, n.parent, n.policy from unnest(_needs) with ordinality n;
    perform nextval('tusk.beside');
    with j as materialized (
      select j.k, j.doubt, _needs[j.k].parent, _needs[j.k].policy
      from tusk_fn.judge_needs(_needs, _fresh, '{}') j where j.open),
    added as (
      insert into tusk.open_need (parent, child, policy)
      select j.parent, w.id, j.policy from j order by j.k
      on conflict do nothing)
    insert into tusk.doubt (child, parent)
    select distinct w.id, j.parent from j where j.doubt
    on conflict (child, parent) do update set n = excluded.n;
    if not exists (select from tusk.open_need o where o.child = w.id) then
      delete from tusk.waiting x where x.id = w.id;
      w.state := 1; w.run_at := clock_timestamp(); w.line := w.run_at;
      _rings := _rings || tusk_fn.place(w);
    end if;
  end loop;
  return query select distinct r from unnest(_rings) r where r is not null;
end $$;
