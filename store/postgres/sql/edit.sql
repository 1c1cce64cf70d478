-- name: lock_tasks
select tusk_fn.lock_tasks($1, $2, $3)

-- name: known_of
-- What the rules need to know about tasks. Needs are looked up only if the ledger has ever had any. Run times are
-- capped, because Go's times have no infinity. Only the state of a task in another ledger is known, and it is negative.
select s.id, s.state, s.lane, tusk_fn.queue_of(s.lane) as queue, coalesce(s.tenant, '') as tenant,
  coalesce(s.key, '') as key, s.attempt, s.crashes,
  greatest(least(s.run_at, '9999-12-31Z'), '0001-01-02Z') as run_at, s.claimed_at, s.finished_at, s.reason, s.worker,
  s.token, s.turn is true as turn, coalesce(s.partition, '') as partition,
  s.turn is true and s.state <> 2 and s.id in (select h.id from tusk.turn h) as has_turn,
  case when l.linked and s.state = 2 then (
    select count(*)::int from tusk.open_need o where o.child = s.id) else 0 end as open,
  l.linked and exists (select from tusk.need n where n.child = s.id) as needs,
  l.linked and exists (select from tusk.open_need o where o.parent = s.id) as needed,
  s.state = 2 and s.key is not null and exists (
    select from tusk.key k
    where k.queue = s.lane >> 16 and k.key = tusk_fn.tenant_key(s.tenant, s.key) and k.awaiting = s.id) as awaits,
  x.reason is not null as stopping, coalesce(x.reason, '') as stop_reason
from (
  select pg_catalog.pg_relation_size('tusk.need') > 0 or pg_catalog.pg_relation_size('tusk.open_need') > 0 as linked
  offset 0) l
cross join pg_catalog.unnest($1::uuid[]) u(id)
cross join lateral (select * from tusk_fn.state_of(u.id) limit 1) s
left join lateral (
  select y.reason from tusk.stop y where s.state = 4 and y.id = s.id and y.token = s.token offset 0) x on true
union all
select f.id, (-f.state)::smallint, 0, null, '', '', 0, 0, '0001-01-02Z', null, null, '', null, null, false, '', false,
  0, false, false, false, false, ''
from pg_catalog.unnest($1::uuid[]) u(id)
cross join lateral (select x.* from tusk.far x where x.id = u.id offset 0) f
where f.state > 0 and not exists (select from tusk_fn.state_of(f.id))

-- name: known_keys
-- Here and below, a lateral subquery with an offset is read by an index once for each row on its left. A join might
-- read the whole table.
select k.place::int, y.holder, y.awaiting, y.ended, y.source_at, y.tasks
from unnest($1::bigint[], $2::text[]) with ordinality k(queue, key, place)
cross join lateral (select x.* from tusk.key x where x.queue = k.queue and x.key = k.key offset 0) y

-- name: known_needs
select n.child, n.parent, n.policy, o.parent is not null as open
from pg_catalog.unnest($1::uuid[]) u(id)
cross join lateral (select x.* from tusk.need x where x.child = u.id offset 0) n
left join lateral (select x.* from tusk.open_need x where x.parent = n.parent and x.child = n.child offset 0) o on true
order by n.child, n.place

-- name: lock_children
-- Locks the tasks that need tasks $1, except those that somebody else holds, whose needs stay in doubt.
select u.id from (
  select distinct o.child as id from pg_catalog.unnest($1::uuid[]) p(id)
  cross join lateral (select x.child from tusk.open_need x where x.parent = p.id offset 0) o order by 1) u
cross join lateral (select from tusk.unready w where w.id = u.id for update skip locked) w

-- name: children_to_tell
-- The open needs of tasks $2, which are locked, for tasks $1, in the order in which tasks $2 were enqueued.
select w.id as child, o.parent, o.policy from pg_catalog.unnest($2::uuid[]) u(id)
cross join lateral (select x.* from tusk.unready x where x.id = u.id offset 0) w
cross join lateral (select x.parent, x.policy from tusk.open_need x where x.child = w.id offset 0) o
where o.parent = any($1::uuid[])
order by w.enqueued_at, w.n

-- name: unpack
-- Replaces packs that contain tasks $1 by rows. It does so only in lanes $2, whose locks are held, and only if some
-- tasks of the pack have not been claimed. The change has no other effect.
with found as materialized (
  select distinct l.xid, l.lane, l.n
  from pg_catalog.unnest($1::uuid[]) u(id)
  cross join lateral (
    select p.xid, p.lane, p.n, p.id, p.packed from tusk.log p
    where p.packed is not null and p.id between tusk_fn.block_of(u.id) and u.id
    order by p.id desc limit 1) l
  where tusk_fn.ids_between(l.id, u.id) < pg_catalog.cardinality(l.packed) and l.lane = any($2::bigint[])
    and tusk_fn.unclaimed(l.lane, l.xid, tusk_fn.last_n(l.n, l.packed))),
gone as (
  delete from tusk.log l using found f where l.lane = f.lane and l.xid = f.xid and l.n = f.n returning l.*)
insert into tusk.log (xid, lane, n, id, enqueued_at, kind, args, expires_at, tags, settings)
select g.xid, g.lane, g.n + u.place, tusk_fn.id_after(g.id, u.place::int - 1), g.enqueued_at, g.kind, u.args,
  g.expires_at, g.tags, g.settings
from gone g cross join lateral pg_catalog.unnest(g.packed) with ordinality u(args, place)

-- name: put_tasks
-- Moves locked tasks from their old places to new ones, in order. The places follow from the old and the new states. $2
-- are the lanes of available tasks. A task whose new state is 0 is deleted. Tasks that place() would leave to the next
-- admission are left here as well, and returned.
with c as materialized (
  select * from json_to_recordset($1::json) as c(id uuid, was smallint, place int, state smallint, lane bigint,
    run_at timestamptz, attempt int, crashes int, reason text, finished_at timestamptz, line timestamptz)),
waited as (
  delete from tusk.unready w where w.id = any(array(select c.id from c where c.was in (1, 2, 5))) returning w.*),
died as (
  delete from tusk.dead d
  where d.ctid = any(array(
    select x.at from c cross join lateral (select d.ctid as at from tusk.dead d where d.id = c.id offset 0) x
    where c.was >= 6))
  returning d.*),
available as (
  delete from tusk.log t
  where t.id = any(array(select c.id from c where c.was = 3)) and t.packed is null and t.lane = any($2::bigint[])
    and tusk_fn.unclaimed(t.lane, t.xid, t.n)
  returning t.*),
left_lane as ( -- rows that a lane's tally counts count as having left the lane
  insert into tusk.lane_position (lane, no, done, win, at_xid, at_n, claimed)
  select g.lane, coalesce(p.no, 0) + 1, coalesce(p.done, '1:1:'), p.win, coalesce(p.at_xid, '0'), coalesce(p.at_n, 0),
    coalesce(p.claimed, 0) + g.rows
  from (
    select x.lane, count(*) as rows from available x
    cross join lateral (select a.seen from tusk.lane_tally a where a.lane = x.lane offset 0) a
    where pg_visible_in_snapshot(x.xid, a.seen) group by x.lane) g
  left join lateral (select * from tusk.lane_position q where q.lane = g.lane order by q.no desc limit 1) p on true),
completed as materialized ( -- by plain completions, whose flushes are locked
  select c.state, t.*, o.at, o.worker, o.claimed_at as began, o.ended_at
  from c
  left join lateral (select true as found from tusk.dead d where d.id = c.id offset 0) d on true
  cross join lateral (select * from tusk_fn.rows_of(c.id) r order by r.xid desc, r.n desc limit 1) t
  cross join lateral tusk_fn.flush_of(t.lane, t.xid, c.id) o
  where c.was >= 6 and d.found is null),
history as ( -- the attempts of completed tasks that run again
  insert into tusk.attempt (id, number, worker, started_at, ended_at, state, error, trace, fingerprint)
  select f.id, f.attempt + 1, f.worker, f.began, f.ended_at, 6, '', '', '' from completed f where f.state > 0),
cut as (
  update tusk.outcome o
  set firsts = array(select i.id from tusk_fn.ids_of(o.firsts, o.counts) i where i.id <> all(x.ids) order by i.place),
    counts = null,
    ago = case when o.ago is not null then
      array(
        select o.ago[i.place] from tusk_fn.ids_of(o.firsts, o.counts) i
        where i.id <> all(x.ids) order by i.place) end,
    keyed = o.keyed - x.keyed
  from (
    select f.at, pg_catalog.array_agg(f.id) as ids, pg_catalog.count(f.key) as keyed from completed f group by f.at) x
  where o.ctid = x.at),
t as (
  select w.id, w.enqueued_at, w.kind, w.args, w.expires_at, w.claimed_at, w.tenant, w.key, w.tags, w.settings,
    w.failure, w.workflow, w.turn, w.partition
  from waited w
  union all
  select d.id, d.enqueued_at, d.kind, d.args, d.expires_at, d.claimed_at, d.tenant, d.key, d.tags, d.settings,
    d.failure, d.workflow, d.turn, d.partition
  from died d
  union all
  select g.id, g.enqueued_at, g.kind, g.args, g.expires_at, g.claimed_at, g.tenant, g.key, g.tags, g.settings,
    g.failure, g.workflow, g.turn, g.partition
  from available g
  union all
  select f.id, f.enqueued_at, f.kind, f.args, f.expires_at, f.began, f.tenant, f.key, f.tags, f.settings, f.failure,
    f.workflow, f.turn, f.partition
  from completed f),
w as materialized (
  select x.*, pg_catalog.nextval('tusk.task_n') as n,
    x.state = 3 and x.claimed_at is not null
      and exists (select from tusk_fn.rows_of(x.id) y where y.xid > pg_current_xact_id()) as early
  from (
    select c.*, t.enqueued_at, t.kind, t.args, t.expires_at, t.claimed_at, t.tenant, t.key, t.tags, t.settings,
      t.failure, t.workflow, t.turn, t.partition
    from t join c on c.id = t.id
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
select coalesce(pg_catalog.array_agg(w.id), '{}') from w where w.early

-- name: note_changes
insert into tusk.note (id, changed_at, changed)
select c.id, $3, c.how from unnest($1::uuid[], $2::text[]) c(id, how) order by c.id
on conflict (id) do update set changed_at = excluded.changed_at, changed = excluded.changed

-- name: give_back_turns
insert into tusk.held (back, ids) values (true, $1::uuid[])

-- name: add_stops
insert into tusk.stop (id, token, reason)
select x.id, x.token, x.reason from unnest($1::uuid[], $2::uuid[], $3::text[]) x(id, token, reason) order by x.id
on conflict (id) do update set token = excluded.token, reason = excluded.reason

-- name: new_keys
-- Existing keys are locked. If somebody else has stored a new one meanwhile, the caller starts over.
with made as (
  insert into tusk.key (queue, key, holder, awaiting, ended, source_at, tasks)
  select k.queue, k.key, k.holder, k.awaiting, k.ended, k.source_at, k.tasks
  from unnest($1::bigint[], $2::text[], $3::uuid[], $4::uuid[], $5::uuid[], $6::timestamptz[], $7::bigint[])
    k(queue, key, holder, awaiting, ended, source_at, tasks)
  order by k.queue, k.key collate "C"
  on conflict do nothing
  returning queue)
select tusk_fn.begin_anew() where (select count(*) from made) < pg_catalog.cardinality($1::bigint[])

-- name: write_keys
update tusk.key y set holder = k.holder, awaiting = k.awaiting, ended = k.ended, source_at = k.source_at,
  tasks = k.tasks
from unnest($1::bigint[], $2::text[], $3::uuid[], $4::uuid[], $5::uuid[], $6::timestamptz[], $7::bigint[])
  k(queue, key, holder, awaiting, ended, source_at, tasks)
cross join lateral (select x.ctid as at from tusk.key x where x.queue = k.queue and x.key = k.key offset 0) x
where y.ctid = x.at and k.tasks > 0

-- name: drop_keys
delete from tusk.key y
where y.ctid = any(array(
  select x.at from unnest($1::bigint[], $2::text[]) k(queue, key)
  cross join lateral (select x.ctid as at from tusk.key x where x.queue = k.queue and x.key = k.key offset 0) x))

-- name: drop_needs
delete from tusk.need x where x.child = any($1::uuid[])

-- name: drop_open_needs
delete from tusk.open_need x where x.child = any($1::uuid[])

-- name: put_needs
insert into tusk.need (child, place, parent, policy)
select n.child, n.place, n.parent, n.policy
from unnest($1::uuid[], $2::uuid[], $3::smallint[]) with ordinality n(child, parent, policy, place)

-- name: count_beside
select pg_catalog.nextval('tusk.beside')

-- name: put_open_needs
-- They are in doubt until their parents were seen after this commit.
insert into tusk.open_need (parent, child, policy)
select n.parent, n.child, n.policy
from unnest($1::uuid[], $2::uuid[], $3::smallint[], $4::boolean[]) n(child, parent, policy, open)
where n.open

-- name: put_doubts
insert into tusk.doubt (child, parent)
select n.child, n.parent
from unnest($1::uuid[], $2::uuid[], $3::boolean[]) n(child, parent, open) where n.open order by n.child, n.parent
on conflict (child, parent) do update set n = excluded.n

-- name: meet_needs
delete from tusk.open_need o
where o.ctid = any(array(
  select x.ctid from unnest($1::uuid[], $2::uuid[]) m(child, parent)
  cross join lateral (select y.ctid from tusk.open_need y where y.child = m.child and y.parent = m.parent offset 0) x))

-- name: lock_doubts
select from tusk.doubt x where x.child = any($1::uuid[]) order by x.child, x.parent for update

-- name: drop_doubts
-- Deletes the doubts of tasks that no longer wait.
delete from tusk.doubt x where x.child = any($1::uuid[])

-- name: forget_tasks
select tusk_fn.forget_tasks($1)

-- name: doubt_children
select tusk_fn.doubt_children($1, $2)
