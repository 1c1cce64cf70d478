-- name: lead
-- $1 the candidate, $2 for how long. Most often another one leads, and that is soon seen.
with other as materialized (
  select 0::bigint as term, clock_timestamp() as now from tusk.leader l
  where $2::bigint > 0 and l.id <> $1::uuid and l.expires_at > clock_timestamp()
    and l.renewed_at <= clock_timestamp() + interval '1 second')
select term, now from other
union all
select c.term, c.now from tusk_fn.candidate($1, $2) c where not exists (select from other)

-- name: adopt
with adopted as (
  update tusk.leader x
  set id = case when $3::bigint > 0 then $1::uuid end, term = $2, renewed_at = c.now,
    expires_at = c.now + $3::float8 * interval '1 us'
  from (select clock_timestamp() as now) c
  where x.term < $2 or x.term = $2 and x.id is not distinct from $1
  returning x.term)
select coalesce(a.term, l.term), clock_timestamp(), a.term is not null from tusk.leader l left join adopted a on true

-- name: admit
select tasks, doomed, queues, next, few from tusk_fn.admit_all($1, $2)

-- name: lock_doomed
select tusk_fn.lock_doomed($1, $2)

-- name: rescue
select lane, id, kind, args, enqueued_at, attempt, crashes, run_at, expires_at, claimed_at, tenant, key, tags, settings,
  workflow, turn, partition, token, worker,
  tusk_fn.queue_of(lane), stray
from tusk_fn.rescue($1, $2, $3)

-- name: prune
select deleted, hand from tusk_fn.prune(?, ?, ?, {retentions}, ?, ?, ?, ?)
