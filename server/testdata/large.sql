-- name: names
-- Eight queues for finished tasks, four for waiting ones.
select tusk_fn.name_lanes(array_agg(tusk_fn.lane_of(q.name, 0)), array_agg(q.name))
from (select 'q' || i from generate_series(0, 7) i union all select 'w' || i from generate_series(0, 3) i) q(name)

-- name: finished
-- What an enqueue of $2 tasks and the flushes of the workers leave behind. The tasks are
-- of batch $1::int and were enqueued during $4, from $3 on. Groups of 500 were claimed
-- and finished together, and 256 of each group came in four packs. One in fifty gave up,
-- and one in fifty failed once. $5 is the worker.
with spec as materialized (
  select i, i / 500 as g, tusk_fn.lane_of('q' || (i / 500 + $1::int) % 8, 0) as lane,
    'q' || (i / 500 + $1::int) % 8 as queue, x.at, p.pack,
    (lpad(to_hex((extract(epoch from x.at) * 1000)::bigint), 12, '0') || '7' || substr(r.r, 1, 3) || '8'
      || substr(r.r, 4, 13)
      || case when p.pack is null then substr(r.r, 17, 2) else lpad(to_hex(i % 500 - 244), 2, '0') end)::uuid as id,
    case when i = 4200 then 'rare-' || $1::int % 10
      else 'kind-' || (i / 500 + $1::int) % 8 || '-' || coalesce(p.pack, least(i * 7 % 11 / 2, 3)) end as kind,
    case when i % 3 > 0 and p.pack is null then 'tenant-' || (i * 31 + $1::int) % 50 * (1 + i % 40) end as tenant,
    case when i % 20 = 0 and p.pack is null then 'key-' || $1::int || '-' || i end as key,
    case when p.pack = 1 then array['tag-' || i / 500 % 7, 'region-' || i / 500 % 4] when p.pack is not null then null
      when i % 40 = 7 then array['order-' || $1::int || '-' || i]
      when i % 5 < 2 then array['tag-' || i % 7, 'region-' || i % 4] end as tags,
    case when p.pack is not null then 6 else case i % 25 when 11 then 8 when 23 then 5 else 6 end end as state
  from generate_series(0, $2::int - 1) i
  cross join lateral (select case when i % 500 >= 244 then (i % 500 - 244) / 64 end as pack) p
  cross join lateral (select case when p.pack is null then i else i / 500 * 500 + 244 end as of) o
  cross join lateral (select $3::timestamptz + o.of * $4::interval / $2 as at) x
  cross join lateral (select md5(o.of || ' ' || $1::int) as r) r),
packs as (
  insert into tusk.log (lane, n, id, enqueued_at, kind, args, tags, packed)
  select s.lane, nextval('tusk.task_n'), s.ids[1], s.at, s.kind, '', s.tags, s.packed
  from (
    select s.lane, s.at, s.kind, s.tags, array_agg(s.id order by s.i) as ids,
      array_agg(convert_to(format('{"n":%s,"to":"someone-%s@example.com","order":{"id":%s,"total":"19.90"}}',
        s.i, s.i, $1::int * 10000 + s.i), 'UTF8') order by s.i) as packed
    from spec s where s.pack is not null group by s.g, s.pack, s.lane, s.at, s.kind, s.tags) s),
log as (
  insert into tusk.log (lane, n, id, enqueued_at, attempt, kind, args, run_at, claimed_at, tenant, key, tags, failure)
  select s.lane, nextval('tusk.task_n'), s.id, s.at, a, s.kind,
    convert_to(format('{"n":%s,"to":"someone-%s@example.com","order":{"id":%s,"total":"19.90"}}',
      s.i, s.i, $1::int * 10000 + s.i), 'UTF8'),
    case when a = 1 then s.at + interval '20 s' end, case when a = 1 then s.at + interval '1 s' end,
    s.tenant, s.key, s.tags, case when a = 1 then 'f' || s.i % 9 end
  from spec s cross join generate_series(0, case s.state when 5 then 1 else 0 end) a
  where s.pack is null),
done as (
  insert into tusk.outcome (lane, node, lo, token, worker, claimed_at, finished_at, keyed, stats, firsts, counts)
  select s.lane, tusk_fn.node_of(pg_current_xact_id(), pg_current_xact_id()), pg_current_xact_id(), gen_random_uuid(),
    $5::uuid, max(s.at) + interval '1 s', max(s.at) + interval '25 s', count(s.key) filter (where s.state <> 8),
    convert_to(min(k.stats), 'UTF8'),
    array_agg(s.id order by s.id) filter (where s.state <> 8 and (s.pack is null or (s.i % 500 - 244) % 64 = 0)),
    array_agg(case when s.pack is null then 1 else 64 end order by s.id)
      filter (where s.state <> 8 and (s.pack is null or (s.i % 500 - 244) % 64 = 0))
  from spec s
  join (
    select k.g, jsonb_agg(jsonb_build_object('queue', k.queue, 'kind', k.kind, 'completed', k.completed,
      'discarded', k.discarded, 'failed', k.failed,
      'waited', jsonb_build_object('s', k.tasks * 1000000000::bigint, 'm', 2000000000,
        'b', jsonb_build_array(jsonb_build_array(30, k.tasks))),
      'ran', jsonb_build_object('s', k.tasks * 5000000::bigint, 'm', 90000000,
        'b', jsonb_build_array(jsonb_build_array(12, k.tasks)))))::text as stats
    from (
      select s.g, s.queue, s.kind, count(*) as tasks, count(*) filter (where s.state <> 8) as completed,
        count(*) filter (where s.state = 8) as discarded, count(*) filter (where s.state <> 6) as failed
      from spec s group by 1, 2, 3) k
    group by k.g) k on k.g = s.g
  group by s.g, s.lane),
failed as (
  insert into tusk.attempt (id, number, worker, started_at, ended_at, state, error, trace, fingerprint)
  select s.id, 1, $5::uuid, s.at + interval '1 s', s.at + interval '2 s', s.state,
    'dial tcp: connection refused, attempt ' || s.i, 'trace', 'f' || s.i % 9
  from spec s where s.state <> 6),
gone as (
  insert into tusk.dead (id, state, lane, run_at, enqueued_at, attempt, crashes, kind, args, claimed_at, tenant, key,
    tags, failure, reason, finished_at)
  select s.id, 8, s.lane, s.at, s.at, 1, 0, s.kind, '{}', s.at + interval '1 s', s.tenant, s.key, s.tags,
    'f' || s.i % 9, 'gave up', s.at + interval '2 s'
  from spec s where s.state = 8),
known as (
  insert into tusk.key (queue, key, tasks) select s.lane >> 16, s.key, 1 from spec s where s.key is not null),
groups as (
  insert into tusk.failure as f (queue, kind, fingerprint, count, first_at, last_at, sample, sample_task)
  select s.lane >> 16, s.kind, 'f' || s.i % 9, count(*), min(s.at), max(s.at), 'dial tcp: connection refused',
    (array_agg(s.id))[1]
  from spec s where s.state <> 6 group by 1, 2, 3
  on conflict (queue, kind, fingerprint) do update set count = f.count + excluded.count, last_at = excluded.last_at)
select min(s.id::text) filter (where s.state = 8) from spec s

-- name: claimed
-- Marks all tasks stored so far as claimed.
insert into tusk.lane_position (lane, no, done, at_xid, at_n, claimed)
select l.id, 1, pg_current_snapshot(), '0', 0, (select count(*) from tusk_fn.task t where t.lane = l.id)
from tusk.lane l

-- name: waiting
-- $2 waiting tasks, batch $1::int. Half of them are available, and half of these are in
-- packs. The others have the states of tasks that may not run yet.
with block as materialized (
  select b, tusk_fn.new_id() as id from generate_series(0, $2::int / 512) b),
spec as materialized (
  select i, case when i % 2 = 0 then 3 when i % 20 = 1 then 2 when i % 20 in (3, 5) then 5 else 1 end as state,
    tusk_fn.lane_of('w' || $1::int % 4, 0) as lane, x.at, p.pack,
    case when p.pack is null then tusk_fn.new_id()
      else (left(p.id::text, 34) || lpad(to_hex(i % 512 / 2), 2, '0'))::uuid end as id,
    'kind-' || $1::int % 4 || '-' || coalesce(p.pack, least(i * 7 % 11 / 2, 3)) as kind,
    case when p.pack is null and (i % 3 > 0 or i % 20 = 1)
      then 'tenant-' || (i * 31 + $1::int) % 50 * (1 + i % 40) end as tenant,
    case when p.pack = 1 then array['tag-' || i / 512 % 7, 'region-' || i / 512 % 4] when p.pack is not null then null
      when i % 40 = 7 then array['order-' || $1::int || '-' || i]
      when i % 5 < 2 then array['tag-' || i % 7, 'region-' || i % 4] end as tags
  from generate_series(0, $2::int - 1) i
  left join lateral (
    select b.id, i % 512 / 128 as pack from block b
    where b.b = i / 512 and i / 512 % 2 = 0 and i % 2 = 0) p on true
  cross join lateral (select clock_timestamp() as at) x),
packs as (
  insert into tusk.log (lane, enqueued_at, id, kind, args, tags, packed)
  select s.lane, s.at, s.ids[1], s.kind, '', s.tags, s.packed
  from (
    select s.lane, min(s.at) as at, s.kind, s.tags, array_agg(s.id order by s.i) as ids,
      array_agg(convert_to(format('{"n":%s}', s.i), 'UTF8') order by s.i) as packed
    from spec s where s.pack is not null group by s.lane, s.i / 128, s.kind, s.tags) s),
log as (
  insert into tusk.log (lane, id, enqueued_at, kind, args, tenant, tags)
  select s.lane, s.id, s.at, s.kind, convert_to(format('{"n":%s}', s.i), 'UTF8'), s.tenant, s.tags
  from spec s where s.state = 3 and s.pack is null)
insert into tusk.waiting (id, state, lane, run_at, enqueued_at, attempt, crashes, kind, args, claimed_at, tenant, tags,
  failure, turn, line)
select s.id, s.state, s.lane, s.at + interval '1 day', s.at, case when s.state = 5 then 1 else 0 end, 0, s.kind,
  convert_to(format('{"n":%s}', s.i), 'UTF8'), case when s.state = 5 then s.at end, s.tenant, s.tags,
  case when s.state = 5 then 'f' || s.i % 9 end, case when s.state = 2 then true end,
  case when s.state = 2 then s.at end
from spec s where s.state <> 3
