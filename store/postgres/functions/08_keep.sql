-- A worker's heartbeat. Returns the attempts that are to be stopped. It touches nothing that a user's transaction may
-- hold.
create function tusk_fn.beat(_id uuid, _about jsonb, _ttl bigint, _every bigint, _seq bigint default 0,
  _seen bigint default 0, _holds uuid[] default '{}')
returns table (id uuid, token uuid) language plpgsql set plan_cache_mode = force_generic_plan set jit = off as $$
#variable_conflict use_column
declare
  _now timestamptz := clock_timestamp();
  w    tusk.worker;
begin
  perform tusk_fn.need_read_committed();
  if _ttl <= 0 then
    update tusk.worker x set dead = true, left_at = _now where x.id = _id and not x.dead and (_seq = 0 or _seq > x.seq);
  else
    insert into tusk.worker as x (id, about, started_at, beat_at, late_at, expires_at, dead, seq, holds, program)
    values (_id, _about, _now, _now, _now + _every * interval '1 us' * 1.5, _now + _ttl * interval '1 us', false, _seq,
      _holds, 'tusk_fn')
    on conflict (id) do update
    set about = excluded.about, beat_at = excluded.beat_at, late_at = excluded.late_at,
      expires_at = excluded.expires_at, suspected_at = null, seq = excluded.seq, holds = excluded.holds,
      program = excluded.program,
      since = case when _seq = 0 then null when _seen > 0 and _seen = x.seq then x.beat_at else x.since end
    where not x.dead and (_seq = 0 or _seq > x.seq);
  end if;
  if not found then
    select * into w from tusk.worker x where x.id = _id;
    if w.dead and (_ttl > 0 or w.left_at is null) then
      raise exception 'the worker is dead' using errcode = 'TK001';
    elsif not w.dead then
      raise exception 'a later beat was seen' using errcode = 'TK009';
    end if;
  end if;
  if _ttl <= 0 or not exists (select from tusk.stop) then
    return;
  end if;
  return query
  select s.id, s.token from tusk.stop s
  cross join lateral (select from tusk_fn.running r where r.token = s.token and r.id = s.id
    and r.worker = _id offset 0) r;
end $$;

-- The lock that the worker's process holds in a session: one for each ledger of the database.
create function tusk_fn.worker_lock(_id uuid) returns bigint language sql stable as $$
  select ('x' || right(replace(_id::text, '-', ''), 16))::bit(64)::bigint # ('tusk.log'::regclass::oid::bigint << 31)
$$;

-- Takes the locks of workers for the session, and records that they are held.
create function tusk_fn.attend(_ids uuid[]) returns void language sql as $$
  select pg_advisory_lock(tusk_fn.worker_lock(u)) from unnest(_ids) u order by tusk_fn.worker_lock(u);
  update tusk.worker w set attended = pg_postmaster_start_time(), suspected_at = null
  where w.id = any(array(select x.id from tusk.worker x where x.id = any(_ids) and not x.dead order by x.id
    for no key update));
$$;

-- Records that a process lives but has lost its session: from now on only beats keep its workers alive.
create function tusk_fn.unattend(_ids uuid[]) returns void language sql as $$
  update tusk.worker w set attended = null, suspected_at = null
  where w.id = any(array(select x.id from tusk.worker x where x.id = any(_ids) and x.attended is not null
    order by x.id for no key update))
$$;

-- Declares workers dead whose session has ended, if their beat is overdue as well and their lock was free once before.
-- A lock is tried only if the beat is overdue or will be within a second. Locks of before a restart or a failover do
-- not count.
create function tusk_fn.miss_workers(_term bigint) returns void language plpgsql as $$
declare
  _now timestamptz := clock_timestamp();
  w    tusk.worker;
begin
  for w in
    select * from tusk.worker x
    where not x.dead and x.attended = pg_postmaster_start_time() and x.late_at <= _now + interval '1 second'
    order by x.id
  loop
    continue when not pg_try_advisory_xact_lock(tusk_fn.worker_lock(w.id));
    if w.suspected_at is null then
      perform tusk_fn.hold_lead(_term);
      update tusk.worker x set suspected_at = _now where x.id = w.id and x.beat_at = w.beat_at;
    elsif w.suspected_at <= _now - interval '400 ms' and w.late_at <= _now then
      perform tusk_fn.hold_lead(_term);
      update tusk.worker x set dead = true where x.id = w.id and x.beat_at = w.beat_at
        and x.suspected_at = w.suspected_at;
    end if;
  end loop;
end $$;

-- Restarts the leases of workers that beat before the clock was set back: otherwise the leader would wait for them by
-- as much longer.
create function tusk_fn.follow_clock() returns void language sql as $$
  update tusk.worker w
  set since = null, expires_at = c.now + (w.expires_at - w.beat_at), late_at = c.now + (w.late_at - w.beat_at),
    beat_at = c.now
  from (select clock_timestamp() as now) c
  where w.id = any(array(
    select x.id from tusk.worker x where not x.dead and x.beat_at > clock_timestamp() + interval '1 second'
      order by x.id for no key update))
$$;

-- At most one candidate holds a running term. It keeps a term that has run out as long as nobody else has taken it.
create function tusk_fn.candidate(_id uuid, _ttl bigint) returns table (term bigint, now timestamptz) language plpgsql
  set jit = off as $$
#variable_conflict use_column
declare
  _now timestamptz := clock_timestamp();
  l    tusk.leader;
begin
  select * into l from tusk.leader;
  if _ttl > 0 and l.id is not null and l.id <> _id and l.expires_at > _now then
    if l.renewed_at > _now + interval '1 second' then -- the clock was set back: the term starts now
      update tusk.leader x set expires_at = _now + (x.expires_at - x.renewed_at), renewed_at = _now
      where x.renewed_at = l.renewed_at;
    end if;
    return query select 0::bigint, _now;
    return;
  elsif _ttl <= 0 and l.id is distinct from _id then
    return query select 0::bigint, _now;
    return;
  end if;
  if l.id = _id and _ttl > 0 then
    update tusk.leader x set expires_at = _now + _ttl * interval '1 us', renewed_at = _now where x.id = _id
      and x.term = l.term;
    if found then
      return query select l.term, _now;
      return;
    end if;
  end if;
  select * into l from tusk.leader for update;
  _now := clock_timestamp();
  if _ttl <= 0 then
    update tusk.leader x set id = null where x.id = _id;
    return query select 0::bigint, _now;
  elsif l.id is null or l.id = _id or l.expires_at <= _now then
    update tusk.leader x set id = _id, expires_at = _now + _ttl * interval '1 us', renewed_at = _now,
      term = x.term + case when l.id is not distinct from _id then 0 else 1 end;
    return query select x.term, _now from tusk.leader x;
  else
    return query select 0::bigint, _now;
  end if;
end $$;

-- Moves waiting tasks that are due into the log, except those whose latest attempt was put there after this transaction
-- began. next is how long until the next one is due, in microseconds.
create function tusk_fn.admit(_term bigint, _limit int)
returns table (tasks int, queues text[], next bigint, few uuid[]) language plpgsql as $$
#variable_conflict use_column
declare
  _now    timestamptz := clock_timestamp();
  _count  int := 0;
  _queues text[];
  _next   timestamptz;
  _few    uuid[];
begin
  perform tusk_fn.need_read_committed();
  perform tusk_fn.lead(_term);
  if exists (select from tusk.waiting w where w.state <> 2 and w.run_at <= _now) then
    perform tusk_fn.hold_lead(_term);
    with due as materialized (
      select w.id, w.turn is true and w.id not in (select h.id from tusk.turn h) as line
      from tusk.waiting w
      where w.state <> 2 and w.run_at <= _now
        and (w.claimed_at is null or not exists (select from tusk_fn.rows_of(w.id) y
          where y.xid > pg_current_xact_id()))
      order by w.run_at, w.n
      limit _limit
      for update of w skip locked),
    lined as (
      update tusk.waiting w set state = 2, line = _now from due where w.id = due.id and due.line),
    gone as (
      delete from tusk.waiting w using due where w.id = due.id and not due.line returning w.*),
    added as (
      insert into tusk.log (lane, id, enqueued_at, attempt, crashes, kind, args, run_at, expires_at, claimed_at,
        tenant, key, tags, settings, failure, workflow, turn, partition)
      select g.lane, g.id, g.enqueued_at, g.attempt, g.crashes, g.kind, g.args, g.run_at, g.expires_at, g.claimed_at,
        g.tenant, g.key, g.tags, g.settings, g.failure, g.workflow, g.turn, g.partition
      from (select * from gone order by run_at, n) g)
    select count(*), array_agg(distinct tusk_fn.queue_of(g.lane)), case when count(*) <= 16 then array_agg(g.id) end
    into _count, _queues, _few from gone g;
  end if;
  select w.run_at into _next from tusk.waiting w where w.state <> 2 and w.run_at < 'infinity' order by w.run_at, w.n
    limit 1;
  return query select _count, coalesce(_queues, '{}'), case when _next is null then -1
    else (extract(epoch from greatest(_next, _now) - _now) * 1000000)::bigint end, coalesce(_few, '{}');
end $$;

-- Declares workers dead, and returns what dead workers hold. It reads all leases, and what is left of those that ended,
-- only if a worker has died recently, or with _all. _all also finds claims that were still under way when the worker
-- died, and strays: tasks that a living worker does not know it holds, because they were claimed before a beat whose
-- answer it has seen, and its latest beat does not name them.
create function tusk_fn.rescue(_term bigint, _limit int, _all boolean)
returns table (
  lane bigint, id uuid, kind text, args bytea, enqueued_at timestamptz, attempt int, crashes int, run_at timestamptz,
  expires_at timestamptz, claimed_at timestamptz, tenant text, key text, tags text[], settings bytea,
  workflow uuid, turn boolean, partition text, token uuid, worker uuid, stray boolean)
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
  _now timestamptz := clock_timestamp();
begin
  perform tusk_fn.need_read_committed();
  perform tusk_fn.lead(_term);
  if exists (select from tusk.worker w where not w.dead and w.beat_at > _now + interval '1 second') then
    perform tusk_fn.hold_lead(_term);
    perform tusk_fn.follow_clock();
  end if;
  if exists (select from tusk.worker w where not w.dead and w.expires_at <= _now) then
    perform tusk_fn.hold_lead(_term);
    update tusk.worker w set dead = true
    where w.id = any(array(select x.id from tusk.worker x where not x.dead and x.expires_at <= _now order by x.id
      for no key update));
    _all := true;
  end if;
  perform tusk_fn.miss_workers(_term);
  if not _all and not exists (select from tusk.worker w where w.dead
      and greatest(w.beat_at, w.left_at, w.suspected_at) > _now - interval '1 minute')
    or not exists (select from tusk.lease) then
    return;
  end if;
  return query
  select h.*, l.token, l.worker, l.stray
  from (
    select l.token, l.worker, bool_or(w.id is not null) as stray
    from tusk.lease l
    left join tusk.worker w on w.id = l.worker and not w.dead
    left join (select x.id, h.token from tusk.worker x cross join unnest(x.holds) h(token) where not x.dead) named
      on named.id = l.worker and named.token = l.token
    where w.id is null or l.claimed_at < w.since and w.since <= _now and named.id is null
    group by l.token, l.worker
    order by 3, min(l.claimed_at)) l
  cross join lateral tusk_fn.held(l.token) h
  limit _limit;
end $$;
