-- name: records
select kind, name, version, body, updated_at
from tusk.record
where kind = $1 and name > $2
order by name collate "C" limit $3

-- name: records_backward
select kind, name, version, body, updated_at
from tusk.record
where kind = $1 and name < $2
order by name collate "C" desc limit $3

-- name: records_named
select r.kind, r.name, r.version, r.body, r.updated_at
from (select distinct n from pg_catalog.unnest($4::pg_catalog.text[]) n) n
  cross join lateral (select * from tusk.record r where r.kind = $1 and r.name = n.n offset 0) r
where r.name > $2
order by r.name collate "C" limit $3

-- name: look_at
-- The records of several kinds, with the leader, the lanes of queues $2 that may have tasks, the ids of up to $4
-- workers that take from each of the queues $3, and the time. There is at least one row. Kinds are looked up one by
-- one, whatever the planner knows. A term that began ahead of the clock is left out, so that Lead corrects it.
select r.kind, r.name, r.version, r.body, r.updated_at, l.id, l.lanes, l.workers, l.now
from (
  select (select x.id from tusk.leader x
      where x.expires_at > clock_timestamp() and x.renewed_at <= clock_timestamp() + interval '1 second') as id,
    case when pg_catalog.cardinality($2::bigint[]) > 0 then tusk_fn.lanes_with_rows($2) end as lanes,
    array(
      select (
        select pg_catalog.string_agg(pg_catalog.uuid_send(w.id), '' order by w.id)
        from (
          select x.id from tusk.worker x
          where not x.dead and x.about operator(pg_catalog.->) 'queues' operator(pg_catalog.?) q.name
          order by x.id limit $4) w)
      from (select $3::text[] as names offset 0) a
      cross join lateral pg_catalog.unnest(a.names) with ordinality q(name, place)
      order by q.place) as workers, clock_timestamp() as now
  offset 0) l
left join (
  select x.* from (select $1::text[] as kinds offset 0) a
  cross join lateral pg_catalog.unnest(a.kinds) k(kind)
  cross join lateral (
    select y.* from tusk.record y where y.kind = k.kind order by y.name collate "C" offset 0) x) r on true

-- name: look_of
-- The lanes of queues $1 that may have tasks in ledger {i}. The statements of several ledgers are combined.
select {i} as i, tusk_fn.lanes_with_rows($1)

-- name: insert_record
insert into tusk.record (kind, name, body) values ($1, $2, $3)
on conflict do nothing
returning version

-- name: update_record
update tusk.record set body = $3, version = pg_catalog.nextval('tusk.record_version'), updated_at = clock_timestamp()
where kind = $1 and name = $2 and version = $4
returning version

-- name: update_records
update tusk.record r set body = n.body, version = pg_catalog.nextval('tusk.record_version'),
  updated_at = clock_timestamp()
from unnest($1::text[], $2::text[], $3::bytea[], $4::bigint[]) with ordinality n (kind, name, body, version, at)
where r.kind = n.kind and r.name = n.name and r.version = n.version
returning n.at, r.version

-- name: delete_record
delete from tusk.record where kind = $1 and name = $2 and version = $3
returning 0::bigint

-- name: absent_record
select 0::bigint where not exists (select from tusk.record where kind = $1 and name = $2)
