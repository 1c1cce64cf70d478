-- name: record.all
select name, version, body, updated_at
from tusk_record force index (primary)
where kind = ?
order by name

-- name: record.lock
select version from tusk_record force index (primary) where kind = ? and name = ? for update

-- name: record.locks
select name, version from tusk_record force index (primary) where kind = ? and name in (:rows) for update

-- name: record.rewrite
insert into tusk_record (kind, name, version, body, updated_at)
values :rows
on duplicate key update version = values(version), body = values(body), updated_at = values(updated_at)

-- name: record.insert
insert into tusk_record (kind, name, version, body, updated_at) values (?, ?, ?, ?, :now)

-- name: record.update
update tusk_record set version = ?, body = ?, updated_at = :now where kind = ? and name = ?

-- name: record.delete
delete from tusk_record where kind = ? and name = ?

-- name: version.raise
update tusk_leader set version = version + 1 where one = 2

-- name: version.raiseby
update tusk_leader set version = version + ? where one = 2

-- name: version.read
select version from tusk_leader where one = 2
