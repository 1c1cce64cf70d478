-- up
set local lock_timeout = '5s';
-- Small words that the larger functions are made of.

create function tusk.lane_of(_queue text, _priority int) returns bigint language sql immutable as $$
  select ((('x' || encode(substr(sha256(convert_to(_queue, 'UTF8')), 1, 6), 'hex'))::bit(48)::bigint & 140737488355327) << 16)
    + _priority + 32768
$$;

create function tusk.priority_of(_lane bigint) returns int language sql immutable as $$
  select (_lane & 65535)::int - 32768
$$;

create function tusk.queue_of(_lane bigint) returns text language sql stable as $$
  select queue from tusk.lane where id between (_lane >> 16) << 16 and ((_lane >> 16) << 16) + 65535 limit 1
$$;

-- A lane has two locks. Whoever claims from it takes the second alone, and holds it for
-- milliseconds. Whoever changes it takes both, and may be a user's transaction that stays
-- open for long: while the first is held, claims do not wait for the second.
create function tusk.lock_lane(_lane bigint) returns void language sql volatile as $$
  select pg_advisory_xact_lock(~(_lane # ('tusk.log'::regclass::oid::bigint << 31)));
  select pg_advisory_xact_lock(_lane # ('tusk.log'::regclass::oid::bigint << 31))
$$;

create function tusk.try_lane(_lane bigint) returns boolean language sql volatile as $$
  select pg_try_advisory_xact_lock(_lane # ('tusk.log'::regclass::oid::bigint << 31))
$$;

-- Says whether a row of a lane has not been claimed yet. To act upon the
-- answer, hold the lane's lock and ask in a statement of its own.
create function tusk.unclaimed(_lane bigint, _xid xid8, _n bigint) returns boolean language sql stable as $$
  select coalesce((
    select not pg_visible_in_snapshot(_xid, p.done)
      and not (p.win is not null and pg_visible_in_snapshot(_xid, p.win) and (_xid, _n) <= (p.at_xid, p.at_n))
    from tusk.lane_position p
    where p.lane = _lane
    order by p.no desc
    limit 1), true)
$$;

-- The number of the last task in a row of the log.
create function tusk.last_n(_n bigint, _packed bytea[]) returns bigint language sql immutable as $$
  select _n + coalesce(cardinality(_packed), 0)
$$;

-- The ids of runs, one by one. Not in SQL: what is inlined is taken for a hundred times
-- as many rows, and compiled.
create function tusk.ids_of(_firsts uuid[], _counts int[]) returns table (id uuid, place bigint) language plpgsql immutable rows 100 as $$
begin
  if _counts is null then
    return query select u.id, u.place from pg_catalog.unnest(_firsts) with ordinality u(id, place);
  else
    return query
    select tusk.id_after(r.first, k), row_number() over (order by r.no, k)
    from unnest(_firsts, _counts) with ordinality r(first, count, no)
    cross join generate_series(0, r.count - 1) k;
  end if;
end $$;

-- The place of an id in runs; null: it is not there.
create function tusk.place_of(_firsts uuid[], _counts int[], _id uuid) returns int language plpgsql immutable as $$
declare
  _block uuid := tusk.block_of(_id);
begin
  if _counts is null then
    return pg_catalog.array_position(_firsts, _id);
  end if;
  return (
    select r.upto - r.count + 1 + tusk.ids_between(r.first, _id)
    from (
      select u.first, u.count, sum(u.count) over (order by u.no) as upto
      from unnest(_firsts, _counts) with ordinality u(first, count, no)) r
    where r.first between _block and _id and tusk.ids_between(r.first, _id) < r.count);
end $$;

-- The tasks in a row of the log, with their places in the lane.
create function tusk.places_of(_id uuid, _n bigint, _packed bytea[]) returns table (id uuid, n bigint) language sql immutable as $$
  select _id, _n where _packed is null
  union all
  select tusk.id_after(_id, u.place::int - 1), _n + u.place from unnest(_packed) with ordinality u(args, place)
$$;

-- Makes rows of the packs that hold these tasks, in lanes whose locks are held, and
-- only where they have not all been claimed: nothing else changes for anybody.
create function tusk.unpack(_ids uuid[], _lanes bigint[]) returns void language sql volatile as $$
  with found as materialized (
    select distinct l.xid, l.lane, l.n
    from unnest(_ids) u(id)
    cross join lateral (
      select p.xid, p.lane, p.n, p.id, p.packed from tusk.log p
      where p.packed is not null and p.id between tusk.block_of(u.id) and u.id
      order by p.id desc limit 1) l
    where tusk.ids_between(l.id, u.id) < cardinality(l.packed) and l.lane = any(_lanes)
      and tusk.unclaimed(l.lane, l.xid, tusk.last_n(l.n, l.packed))),
  gone as (
    delete from tusk.log l using found f where l.lane = f.lane and l.xid = f.xid and l.n = f.n returning l.*)
  insert into tusk.log (xid, lane, n, id, enqueued_at, kind, args, expires_at, tags, settings)
  select g.xid, g.lane, g.n + u.place, tusk.id_after(g.id, u.place::int - 1), g.enqueued_at, g.kind, u.args, g.expires_at, g.tags, g.settings
  from gone g cross join lateral unnest(g.packed) with ordinality u(args, place)
$$;

-- The narrowest dyadic interval that holds two xids, as a number. Not in SQL: what
-- cannot be inlined is planned anew in every statement.
create function tusk.node_of(_lo xid8, _hi xid8) returns bigint language plpgsql immutable as $$
declare
  l bigint := _lo::text::bigint;
  s int := case when _lo = _hi then 0 else length(ltrim((l # _hi::text::bigint)::bit(64)::text, '0')) end;
begin
  return ((l >> s) * 2 + 1) << s;
end $$;

-- All dyadic intervals that hold an xid.
create function tusk.nodes_of(_xid xid8) returns bigint[] language sql immutable as $$
  select array_agg(((x >> s) * 2 + 1) << s) from (select _xid::text::bigint as x) y, generate_series(0, 48) s
$$;

-- The flush that completed a task of an xid, and when the task ended, looked for interval
-- by interval: at once, the planner would rather read all that there was of the lane.
create function tusk.flush_of(_lane bigint, _xid xid8, _id uuid)
returns table (at tid, worker uuid, claimed_at timestamptz, ended_at timestamptz)
language sql stable rows 1 as $$
  select o.at, o.worker, o.claimed_at,
    case when o.ago is null then o.finished_at
      else greatest(o.finished_at - coalesce(o.ago[tusk.place_of(o.firsts, o.counts, _id)], 0) * interval '1 ms', o.claimed_at) end
  from (select tusk.block_of(_id) as block offset 0) b
  cross join unnest(tusk.nodes_of(_xid)) d(node)
  cross join lateral (
    select y.ctid as at, y.worker, y.claimed_at, y.finished_at, y.firsts, y.counts, y.ago
    from tusk.outcome y
    where y.lane = _lane and y.node = d.node and (_id = any(y.firsts) or exists (
      select from unnest(y.firsts, y.counts) r(first, count)
      where y.counts is not null and r.first between b.block and _id and tusk.ids_between(r.first, _id) < r.count))
    offset 0) o
$$;

-- Fails unless the term runs.
create function tusk.lead(_term bigint) returns void language plpgsql as $$
begin
  if not exists (select from tusk.leader where term = _term and id is not null and expires_at > clock_timestamp()) then
    raise exception 'not the leader' using errcode = 'TK002';
  end if;
end $$;

-- The same, and holds the term's end off until the transaction is over.
create function tusk.hold_lead(_term bigint) returns void language plpgsql set jit = off as $$
begin
  perform 1 from tusk.leader where term = _term and id is not null and expires_at > clock_timestamp() for key share;
  if not found then
    raise exception 'not the leader' using errcode = 'TK002';
  end if;
end $$;

create function tusk.need_read_committed() returns void language plpgsql as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'Tusk needs the isolation level read committed, not %', current_setting('transaction_isolation')
      using errcode = 'TK003';
  end if;
end $$;

-- Names lanes that were not named before.
create function tusk.name_lanes(_lanes bigint[], _queues text[]) returns void language plpgsql set jit = off as $$
declare
  clash text;
begin
  insert into tusk.lane (id, queue)
  select x.id, x.queue
  from unnest(_lanes, _queues) x(id, queue)
  where not exists (select from tusk.lane l where l.id = x.id and l.idle_at is null);
  select l.queue into clash
  from unnest(_lanes, _queues) x(id, queue)
  join tusk.lane l on l.id = x.id and l.queue <> x.queue
  limit 1;
  if found then
    raise exception 'the name of this queue has the hash of queue "%": choose another', clash using errcode = 'TK007';
  end if;
end $$;

-- Tasks in open leases.
create view tusk.running as
select l.token, l.lane, l.worker, l.claimed_at, l.lo, l.hi, u.id, u.place
from tusk.lease l
cross join lateral tusk.ids_of(l.firsts, l.counts) u
where (l.open is null or get_bit(l.open, u.place::int - 1) = 1)
  and not exists (select from tusk.finished f where f.token = l.token and f.id = u.id);

-- How many tasks are open in leases.
create view tusk.load as
select l.token, l.lane, l.worker,
  coalesce(bit_count(l.open), (select sum(c) from unnest(l.counts) c), cardinality(l.firsts)) - (
    select count(*) from tusk.finished f where f.token = l.token and tusk.place_of(l.firsts, l.counts, f.id) is not null) as tasks
from tusk.lease l;

-- The tasks of each place, with their state as a number. A page of tasks asks each
-- place for its newest alone.
create view tusk.waiting_tasks (id, state, lane, kind, args, enqueued_at, attempt, crashes, run_at, expires_at, claimed_at, tenant, key, tags, settings, failure,
  reason, finished_at, token, worker, workflow, turn, partition) as
select w.id, w.state, w.lane, w.kind, w.args, w.enqueued_at, w.attempt, w.crashes, w.run_at, w.expires_at, w.claimed_at,
  w.tenant, w.key, w.tags, w.settings, w.failure, '' as reason, null::timestamptz as finished_at,
  null::uuid as token, null::uuid as worker, w.workflow, w.turn, w.partition
from tusk.waiting w;

create view tusk.dead_tasks (id, state, lane, kind, args, enqueued_at, attempt, crashes, run_at, expires_at, claimed_at, tenant, key, tags, settings, failure,
  reason, finished_at, token, worker, workflow, turn, partition) as
select d.id, d.state, d.lane, d.kind, d.args, d.enqueued_at, d.attempt, d.crashes, d.run_at, d.expires_at, d.claimed_at,
  d.tenant, d.key, d.tags, d.settings, d.failure, d.reason, d.finished_at, null::uuid, null::uuid,
  d.workflow, d.turn, d.partition
from tusk.dead d;

create view tusk.running_tasks (id, state, lane, kind, args, enqueued_at, attempt, crashes, run_at, expires_at, claimed_at, tenant, key, tags, settings, failure,
  reason, finished_at, token, worker, workflow, turn, partition) as
select r.id, 4::smallint, r.lane, t.kind, t.args, t.enqueued_at, t.attempt + 1, t.crashes, coalesce(t.run_at, t.enqueued_at), t.expires_at, r.claimed_at,
  t.tenant, t.key, t.tags, t.settings, t.failure, '', null::timestamptz, r.token, r.worker,
  t.workflow, t.turn, t.partition
from tusk.running r
cross join lateral (
  select t.* from (select * from tusk.rows_of(r.id, r.lo, r.hi) offset 0) t -- or the whole stretch of the lane might be walked
  where t.lane = r.lane
  order by t.xid desc limit 1) t;

create view tusk.available_tasks (id, state, lane, kind, args, enqueued_at, attempt, crashes, run_at, expires_at, claimed_at, tenant, key, tags, settings, failure,
  reason, finished_at, token, worker, workflow, turn, partition) as
select t.id, 3::smallint, t.lane, t.kind, t.args, t.enqueued_at, t.attempt, t.crashes, coalesce(t.run_at, t.enqueued_at), t.expires_at, t.claimed_at,
  t.tenant, t.key, t.tags, t.settings, t.failure, '', null::timestamptz, null::uuid, null::uuid,
  t.workflow, t.turn, t.partition
from tusk.task t
where tusk.unclaimed(t.lane, t.xid, t.n);

create view tusk.completed_tasks (id, state, lane, kind, args, enqueued_at, attempt, crashes, run_at, expires_at, claimed_at, tenant, key, tags, settings, failure,
  reason, finished_at, token, worker, workflow, turn, partition) as
select t.id, 6::smallint, t.lane, t.kind, t.args, t.enqueued_at, t.attempt + 1, 0, coalesce(t.run_at, t.enqueued_at), t.expires_at, o.claimed_at,
  t.tenant, t.key, t.tags, t.settings, t.failure, '', o.ended_at, null::uuid, null::uuid, t.workflow, t.turn, t.partition
from tusk.task t
join lateral (select o.claimed_at, o.ended_at from tusk.flush_of(t.lane, t.xid, t.id) o limit 1) o on true
where not tusk.unclaimed(t.lane, t.xid, t.n)
  and not exists (select from tusk.log y where y.id = t.id and y.packed is null and (y.xid, y.n) > (t.xid, t.n));

-- Every task once, with its state as a number.
create view tusk.task_state as
select * from tusk.waiting_tasks
union all
select * from tusk.dead_tasks
union all
select * from tusk.running_tasks
union all
select * from tusk.available_tasks
union all
select * from tusk.completed_tasks;

-- The task of an id, whose latest row in the log tells.
create function tusk.state_of(_id uuid) returns setof tusk.task_state language sql stable rows 1 as $$
  select * from tusk.waiting_tasks w where w.id = _id
  union all
  select * from tusk.dead_tasks d where d.id = _id
  union all
  select t.id, s.state, t.lane, t.kind, t.args, t.enqueued_at, case when s.state = 3 then t.attempt else t.attempt + 1 end,
    case when s.state = 6 then 0 else t.crashes end, coalesce(t.run_at, t.enqueued_at), t.expires_at, s.claimed_at,
    t.tenant, t.key, t.tags, t.settings, t.failure, '', s.finished_at, s.token, s.worker, t.workflow, t.turn, t.partition
  from (select * from tusk.rows_of(_id) r order by r.xid desc, r.n desc limit 1) t
  cross join lateral (
    select 3::smallint as state, t.claimed_at, null::timestamptz as finished_at, null::uuid as token, null::uuid as worker
    where tusk.unclaimed(t.lane, t.xid, t.n)
    union all
    select 4::smallint, l.claimed_at, null, l.token, l.worker
    from (select tusk.block_of(t.id) as block offset 0) b
    cross join tusk.lease l
    where l.lane = t.lane and t.xid between l.lo and l.hi and (t.id = any(l.firsts) or exists (
        select from unnest(l.firsts, l.counts) r(first, count)
        where l.counts is not null and r.first between b.block and t.id and tusk.ids_between(r.first, t.id) < r.count))
      and (l.open is null or get_bit(l.open, tusk.place_of(l.firsts, l.counts, t.id) - 1) = 1)
      and not exists (select from tusk.finished f where f.token = l.token and f.id = t.id)
    union all
    (select 6::smallint, o.claimed_at, o.ended_at, null, null
     from tusk.flush_of(t.lane, t.xid, t.id) o where not tusk.unclaimed(t.lane, t.xid, t.n) limit 1)
    limit 1) s
$$;

-- Every task once, for people and their queries.
create view tusk.tasks as
select s.id,
  (array['scheduled', 'pending', 'available', 'running', 'retryable', 'completed', 'cancelled', 'discarded'])[s.state] as state,
  tusk.queue_of(s.lane) as queue, tusk.priority_of(s.lane) as priority, s.kind, convert_from(s.args, 'UTF8') as args,
  s.attempt, s.crashes, s.tenant, s.key, s.tags, s.reason, s.enqueued_at, s.run_at, s.expires_at, s.claimed_at,
  s.finished_at, s.worker, s.workflow, s.turn is true as turn, s.partition
from tusk.task_state s;

-- The task of an id, which the view would look for in every pack.
create function tusk.find(id uuid) returns setof tusk.tasks language sql stable as $$
  select s.id,
    (array['scheduled', 'pending', 'available', 'running', 'retryable', 'completed', 'cancelled', 'discarded'])[s.state],
    tusk.queue_of(s.lane), tusk.priority_of(s.lane), s.kind, convert_from(s.args, 'UTF8'),
    s.attempt, s.crashes, s.tenant, s.key, s.tags, s.reason, s.enqueued_at, s.run_at, s.expires_at, s.claimed_at,
    s.finished_at, s.worker, s.workflow, s.turn is true, s.partition
  from tusk.state_of($1) s
$$;

-- How many available tasks a lane has, and since when the next one has been due.
-- Only rows newer than the lane's tally are counted.
create view tusk.depth as
select l.lane, l.queue, coalesce(a.added, 0) + fresh.rows - coalesce(p.claimed, 0) as tasks, head.due as oldest
from (select id as lane, min(queue) as queue from tusk.lane group by id) l
left join tusk.lane_tally a on a.lane = l.lane
left join lateral (select p.* from tusk.lane_position p where p.lane = l.lane order by p.no desc limit 1) p on true
cross join lateral (
  -- One transaction at a time: joined, the whole lane might be walked.
  select (
    select coalesce(sum(late.rows), 0)::bigint from pg_snapshot_xip(a.seen) x
    cross join lateral (
      select sum(coalesce(cardinality(t.packed), 1)) as rows from tusk.log t where t.lane = l.lane and t.xid = x) late) + (
    select coalesce(sum(coalesce(cardinality(t.packed), 1)), 0)::bigint from tusk.log t
    where t.lane = l.lane and t.xid >= coalesce(pg_snapshot_xmax(a.seen), '0')) as rows) fresh
left join lateral (
  select min(coalesce(x.run_at, x.enqueued_at)) as due
  from (
    (select late.run_at, late.enqueued_at from pg_snapshot_xip(coalesce(p.done, '1:1:')) x
     cross join lateral (
       select t.run_at, t.enqueued_at from tusk.log t
       where t.lane = l.lane and t.xid = x and tusk.unclaimed(t.lane, t.xid, tusk.last_n(t.n, t.packed))
       order by t.lane, t.xid, t.n limit 1) late)
    union all
    (select t.run_at, t.enqueued_at from tusk.log t
     where t.lane = l.lane and (t.xid, t.n) >= (greatest(p.at_xid, pg_snapshot_xmax(p.done), '0'),
         case when p.at_xid >= pg_snapshot_xmax(p.done) then p.at_n & -256 else 0 end)
       and tusk.unclaimed(t.lane, t.xid, tusk.last_n(t.n, t.packed))
     order by t.lane, t.xid, t.n limit 1)) x) head on true
where coalesce(a.added, 0) + fresh.rows - coalesce(p.claimed, 0) > 0;

-- Unfinished tasks by queue and state. Compiling the query would take longer than
-- running it, a hundred times over.
create function tusk.counts() returns table (queue text, state int, tasks bigint, oldest timestamptz)
language sql stable set jit = off as $$
  select c.queue, c.state, c.tasks, c.oldest
  from (
    select tusk.queue_of(w.lane) as queue, w.state::int, w.tasks, null::timestamptz as oldest
    from (select min(lane) as lane, state, count(*) as tasks from tusk.waiting group by lane >> 16, state) w
    union all
    select tusk.queue_of(r.lane), 4, r.tasks, null
    from (select min(l.lane) as lane, sum(l.tasks)::bigint as tasks from tusk.load l group by l.lane >> 16) r
    union all
    select min(d.queue), 3, sum(d.tasks)::bigint, min(d.oldest)
    from tusk.depth d
    group by d.lane >> 16) c;
$$;

-- down
set local lock_timeout = '5s';
drop function tusk.counts, tusk.find, tusk.state_of;
drop view tusk.depth, tusk.tasks, tusk.task_state, tusk.waiting_tasks, tusk.dead_tasks, tusk.running_tasks, tusk.available_tasks,
  tusk.completed_tasks, tusk.load, tusk.running;
drop function tusk.name_lanes, tusk.need_read_committed, tusk.hold_lead, tusk.lead, tusk.flush_of, tusk.nodes_of, tusk.node_of,
  tusk.unpack, tusk.places_of, tusk.place_of, tusk.ids_of, tusk.last_n, tusk.unclaimed, tusk.try_lane, tusk.lock_lane, tusk.queue_of, tusk.priority_of, tusk.lane_of;
