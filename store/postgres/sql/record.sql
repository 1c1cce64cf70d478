-- name: records
select kind, name, version, body, updated_at from tusk.record where kind = $1 order by name collate "C"

-- name: hold_lead
select tusk.hold_lead($1)

-- name: insert_record
insert into tusk.record (kind, name, body) values ($1, $2, $3)
on conflict do nothing
returning version

-- name: update_record
update tusk.record set body = $3, version = nextval('tusk.record_version'), updated_at = clock_timestamp()
where kind = $1 and name = $2 and version = $4
returning version

-- name: delete_record
delete from tusk.record where kind = $1 and name = $2 and version = $3
returning 0::bigint

-- name: absent_record
select 0::bigint where not exists (select from tusk.record where kind = $1 and name = $2)
