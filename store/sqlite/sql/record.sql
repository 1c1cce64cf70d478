-- name: record.list
select name, version, body, updated_at from tusk_record where kind = ? and name > ? order by name limit ?;

-- name: record.backward
select name, version, body, updated_at from tusk_record where kind = ? and name < ? order by name desc limit ?;

-- name: record.named
select name, version, body, updated_at from tusk_record
where kind = ? and name in (select value from json_each(?)) and name > ?
order by name limit ?;

-- name: record.version
select version from tusk_record where kind = ? and name = ?;

-- name: record.next
update tusk_clock set versions = versions + 1 where one = 1 returning versions;

-- name: record.write
insert into tusk_record (kind, name, version, body, updated_at) values (?, ?, ?, ?, ?)
on conflict (kind, name) do update
set version = excluded.version, body = excluded.body, updated_at = excluded.updated_at;

-- name: record.drop
delete from tusk_record where kind = ? and name = ?;
