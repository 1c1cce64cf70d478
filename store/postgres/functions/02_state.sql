-- Tasks in open leases.
create view tusk_fn.running as
select l.token, l.lane, l.worker, l.claimed_at, l.lo, l.hi, u.id, u.place
from tusk.lease l
cross join lateral tusk_fn.ids_of(l.firsts, l.counts) u
where (l.open is null or get_bit(l.open, u.place::int - 1) = 1)
  and not exists (select from tusk.finished f where f.token = l.token and f.id = u.id);

-- The number of open tasks of each lease.
create view tusk_fn.load as
select l.token, l.lane, l.worker,
  coalesce(bit_count(l.open), (select sum(c) from unnest(l.counts) c), cardinality(l.firsts)) - (
    select count(*) from tusk.finished f where f.token = l.token
      and tusk_fn.place_of(l.firsts, l.counts, f.id) is not null) as tasks
from tusk.lease l;

-- One view for each place where tasks are stored, with their state as a number. A page of
-- tasks queries each place for its newest tasks separately.
create view tusk_fn.waiting_tasks (id, state, lane, kind, args, enqueued_at, attempt, crashes, run_at, expires_at,
  claimed_at, tenant, key, tags, settings, failure, reason, finished_at, token, worker, workflow, turn, partition) as
select w.id, w.state, w.lane, w.kind, w.args, w.enqueued_at, w.attempt, w.crashes, w.run_at, w.expires_at, w.claimed_at,
  w.tenant, w.key, w.tags, w.settings, w.failure, '' as reason, null::timestamptz as finished_at,
  null::uuid as token, null::uuid as worker, w.workflow, w.turn, w.partition
from tusk.unready w;

create view tusk_fn.dead_tasks (id, state, lane, kind, args, enqueued_at, attempt, crashes, run_at, expires_at,
  claimed_at, tenant, key, tags, settings, failure, reason, finished_at, token, worker, workflow, turn, partition) as
select d.id, d.state, d.lane, d.kind, d.args, d.enqueued_at, d.attempt, d.crashes, d.run_at, d.expires_at, d.claimed_at,
  d.tenant, d.key, d.tags, d.settings, d.failure, d.reason, d.finished_at, null::uuid, null::uuid,
  d.workflow, d.turn, d.partition
from tusk.dead d;

-- The tasks of open leases, as their claims returned them.
create view tusk_fn.held as
select r.token, r.worker, r.claimed_at, r.lane, r.id, t.kind, t.args, t.enqueued_at, t.attempt + 1 as attempt,
  t.crashes, t.run_at, t.expires_at, t.tenant, t.key, t.tags, t.settings, t.failure, t.workflow, t.turn, t.partition,
  t.xid, t.n
from tusk_fn.running r
cross join lateral (
  -- without the offset, the planner may read the lane from lo to hi
  select t.* from (select * from tusk_fn.rows_of(r.id, r.lo, r.hi) offset 0) t
  where t.lane = r.lane
  order by t.xid desc limit 1) t;

create view tusk_fn.running_tasks (id, state, lane, kind, args, enqueued_at, attempt, crashes, run_at, expires_at,
  claimed_at, tenant, key, tags, settings, failure, reason, finished_at, token, worker, workflow, turn, partition) as
select h.id, 4::smallint, h.lane, h.kind, h.args, h.enqueued_at, h.attempt, h.crashes,
  coalesce(h.run_at, h.enqueued_at), h.expires_at, h.claimed_at, h.tenant, h.key, h.tags, h.settings, h.failure, '',
  null::timestamptz, h.token, h.worker, h.workflow, h.turn, h.partition
from tusk_fn.held h;

create view tusk_fn.available_tasks (id, state, lane, kind, args, enqueued_at, attempt, crashes, run_at, expires_at,
  claimed_at, tenant, key, tags, settings, failure, reason, finished_at, token, worker, workflow, turn, partition) as
select t.id, 3::smallint, t.lane, t.kind, t.args, t.enqueued_at, t.attempt, t.crashes,
  coalesce(t.run_at, t.enqueued_at), t.expires_at, t.claimed_at, t.tenant, t.key, t.tags, t.settings, t.failure, '',
  null::timestamptz, null::uuid, null::uuid, t.workflow, t.turn, t.partition
from tusk_fn.task t
where tusk_fn.unclaimed(t.lane, t.xid, t.n);

create view tusk_fn.completed_tasks (id, state, lane, kind, args, enqueued_at, attempt, crashes, run_at, expires_at,
  claimed_at, tenant, key, tags, settings, failure, reason, finished_at, token, worker, workflow, turn, partition) as
select t.id, 6::smallint, t.lane, t.kind, t.args, t.enqueued_at, t.attempt + 1, 0, coalesce(t.run_at, t.enqueued_at),
  t.expires_at, o.claimed_at, t.tenant, t.key, t.tags, t.settings, t.failure, '', o.ended_at, null::uuid, o.worker,
  t.workflow, t.turn, t.partition
from tusk_fn.task t
join lateral (select o.claimed_at, o.ended_at, o.worker from tusk_fn.flush_of(t.lane, t.xid, t.id) o limit 1) o on true
where not tusk_fn.unclaimed(t.lane, t.xid, t.n)
  and not exists (select from tusk.log y where y.id = t.id and y.packed is null and (y.xid, y.n) > (t.xid, t.n));

-- Every task once, with its state as a number.
create view tusk_fn.task_state as
select * from tusk_fn.waiting_tasks
union all
select * from tusk_fn.dead_tasks
union all
select * from tusk_fn.running_tasks
union all
select * from tusk_fn.available_tasks
union all
select * from tusk_fn.completed_tasks;

-- The task with an id. If it is neither waiting nor dead, its latest row in the log decides. Most tasks that are looked
-- up are not in packs, so packs are searched only if nothing else is found. The test of tusk_fn.unclaimed() is repeated
-- here, because a call cannot be inlined and takes four times as long. The flush that completed the task is not looked
-- up. If the task must have been completed, flushed is the xid to search for.
create function tusk_fn.spot_of(_id uuid)
returns table (id uuid, state smallint, lane bigint, kind text, args bytea, enqueued_at timestamptz, attempt int,
  crashes int, run_at timestamptz, expires_at timestamptz, claimed_at timestamptz, tenant text, key text, tags text[],
  settings bytea, failure text, reason text, finished_at timestamptz, token uuid, worker uuid, workflow uuid,
  turn boolean, partition text, flushed xid8)
language sql stable rows 1 as $$
  select w.*, null::xid8 from tusk_fn.waiting_tasks w where w.id = _id
  union all
  select d.*, null from tusk_fn.dead_tasks d where d.id = _id
  union all
  select t.id, s.state, t.lane, t.kind, t.args, t.enqueued_at,
    case when s.state = 3 then t.attempt else t.attempt + 1 end, case when s.state = 6 then 0 else t.crashes end,
    coalesce(t.run_at, t.enqueued_at), t.expires_at, s.claimed_at, t.tenant, t.key, t.tags, t.settings, t.failure, '',
    s.finished_at, s.token, s.worker, t.workflow, t.turn, t.partition, s.flushed
  from (
    select t.*, coalesce((
      select not pg_visible_in_snapshot(t.xid, p.done)
        and not (p.win is not null and pg_visible_in_snapshot(t.xid, p.win) and (t.xid, t.n) <= (p.at_xid, p.at_n))
      from tusk.lane_position p
      where p.lane = t.lane
      order by p.no desc
      limit 1), true) as available
    from (
      select r.* from (
        (select * from tusk_fn.unpacked r where r.id = _id order by r.xid desc, r.n desc limit 1)
        union all
        (select * from tusk_fn.rows_of(_id) r order by r.xid desc, r.n desc limit 1)) r
      limit 1) t
    offset 0) t
  cross join lateral (
    select 3::smallint as state, t.claimed_at, null::timestamptz as finished_at, null::uuid as token,
      null::uuid as worker, null::xid8 as flushed
    where t.available
    union all
    select 4::smallint, l.claimed_at, null, l.token, l.worker, null
    from (select tusk_fn.block_of(t.id) as block offset 0) b
    cross join tusk.lease l
    where l.lane = t.lane and t.xid between l.lo and l.hi and (t.id = any(l.firsts) or exists (
        select from unnest(l.firsts, l.counts) r(first, count)
        where l.counts is not null and r.first between b.block and t.id
          and tusk_fn.ids_between(r.first, t.id) < r.count))
      and (l.open is null or get_bit(l.open, tusk_fn.place_of(l.firsts, l.counts, t.id) - 1) = 1)
      and not exists (select from tusk.finished f where f.token = l.token and f.id = t.id)
    union all
    select 6::smallint, null, null, null, null, t.xid where not t.available
    limit 1) s
  limit 1
$$;

-- The task with an id.
create function tusk_fn.state_of(_id uuid) returns setof tusk_fn.task_state language sql stable rows 1 as $$
  select s.id, s.state, s.lane, s.kind, s.args, s.enqueued_at, s.attempt, s.crashes, s.run_at, s.expires_at,
    coalesce(o.claimed_at, s.claimed_at), s.tenant, s.key, s.tags, s.settings, s.failure, s.reason,
    coalesce(o.ended_at, s.finished_at), s.token, coalesce(o.worker, s.worker), s.workflow, s.turn, s.partition
  from tusk_fn.spot_of(_id) s
  left join lateral (
    select f.* from tusk_fn.flush_of(s.lane, s.flushed, s.id) f where s.flushed is not null limit 1) o on true
  where s.flushed is null or o.worker is not null
$$;

-- Every task once, for queries by users.
create view tusk_fn.tasks as
select s.id,
  (array['scheduled', 'pending', 'available', 'running', 'retryable', 'completed', 'cancelled',
    'discarded'])[s.state] as state,
  tusk_fn.queue_of(s.lane) as queue, (s.lane & 65535)::int - 32768 as priority, s.kind,
  convert_from(s.args, 'UTF8') as args, s.attempt, s.crashes, s.tenant, s.key, s.tags, s.reason, s.enqueued_at,
  s.run_at, s.expires_at, s.claimed_at, s.finished_at, s.worker, s.workflow, s.turn is true as turn, s.partition,
  n.changed_at, n.changed
from tusk_fn.task_state s
left join tusk.note n on n.id = s.id;

-- The task with an id. The view tasks would search every pack for it.
create function tusk_fn.find(id uuid) returns setof tusk_fn.tasks language sql stable as $$
  select s.id,
    (array['scheduled', 'pending', 'available', 'running', 'retryable', 'completed', 'cancelled',
      'discarded'])[s.state],
    tusk_fn.queue_of(s.lane), (s.lane & 65535)::int - 32768, s.kind, convert_from(s.args, 'UTF8'), s.attempt, s.crashes,
    s.tenant, s.key, s.tags, s.reason, s.enqueued_at, s.run_at, s.expires_at, s.claimed_at, s.finished_at, s.worker,
    s.workflow, s.turn is true, s.partition, n.changed_at, n.changed
  from tusk_fn.state_of($1) s
  left join tusk.note n on n.id = s.id
$$;

-- The number of available tasks in each lane, and when the next one was due. The lane's tally counts the older rows, so
-- only newer ones have to be counted here.
create view tusk_fn.depth as
select l.lane, l.queue, coalesce(a.added, 0) + fresh.rows - coalesce(p.claimed, 0) as tasks, head.due as oldest
from (select id as lane, min(queue) as queue from tusk.lane group by id) l
left join tusk.lane_tally a on a.lane = l.lane
left join lateral (select p.* from tusk.lane_position p where p.lane = l.lane order by p.no desc limit 1) p on true
cross join lateral (
  -- One transaction at a time: a join might read the whole lane.
  select (
    select coalesce(sum(late.rows), 0)::bigint from pg_snapshot_xip(a.seen) x
    cross join lateral (
      select sum(coalesce(cardinality(t.packed), 1)) as rows from tusk.log t where t.lane = l.lane
        and t.xid = x) late) + (
    select coalesce(sum(coalesce(cardinality(t.packed), 1)), 0)::bigint from tusk.log t
    where t.lane = l.lane and t.xid >= coalesce(pg_snapshot_xmax(a.seen), '0')) as rows) fresh
left join lateral (
  select min(coalesce(x.run_at, x.enqueued_at)) as due
  from (
    (select late.run_at, late.enqueued_at from pg_snapshot_xip(coalesce(p.done, '1:1:')) x
     cross join lateral (
       select t.run_at, t.enqueued_at from tusk.log t
       where t.lane = l.lane and t.xid = x and tusk_fn.unclaimed(t.lane, t.xid, tusk_fn.last_n(t.n, t.packed))
       order by t.lane, t.xid, t.n limit 1) late)
    union all
    (select t.run_at, t.enqueued_at from tusk.log t
     where t.lane = l.lane and (t.xid, t.n) >= (greatest(p.at_xid, pg_snapshot_xmax(p.done), '0'),
         case when p.at_xid >= pg_snapshot_xmax(p.done) then p.at_n & -256 else 0 end)
       and tusk_fn.unclaimed(t.lane, t.xid, tusk_fn.last_n(t.n, t.packed))
     order by t.lane, t.xid, t.n limit 1)) x) head on true
where coalesce(a.added, 0) + fresh.rows - coalesce(p.claimed, 0) > 0;
