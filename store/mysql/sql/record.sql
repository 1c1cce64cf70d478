-- name: record.all
select name, version, body, updated_at
from tusk_record force index (primary)
where kind = ? and name > ?
order by name
limit ?

-- name: record.backward
select name, version, body, updated_at
from tusk_record force index (primary)
where kind = ? and name < ?
order by name desc
limit ?

-- name: record.named
select name, version, body, updated_at
from tusk_record force index (primary)
where kind = ? and name > ? and name in (:rows)
order by name
limit ?

-- name: look.records
(select 0, kind, name, version, body, updated_at from tusk_record force index (primary) where kind in (:rows))

-- name: look.leader
-- How long the term still runs, and the time. A term that began ahead of the clock counts as over, so that Lead
-- corrects it.
(select 1, id, '', if(version <= :now + 1000000, expires_at - :now, 0), '', :now from tusk_leader where one = 1)

-- name: look.queue
(select 2, '', ?, 1, '', 0 from tusk_ready force index (primary) where queue = ? limit 1)

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
