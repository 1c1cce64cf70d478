-- name: days.check
select term, version from tusk_leader where one = 3 lock in share mode

-- name: days.lock
select term, version from tusk_leader where one = 3 for update

-- name: days.mark
update tusk_leader set term = ?, version = ? where one = 3

-- name: days.kept
select 1 from tusk_task partition (:partition) where not (:expired) or state < 6 limit 1

-- name: days.depended
select :columns without args
from tusk_task partition (:partition)
where place >= ? and (tkey is not null or failure is not null or needed = 1)
order by place, n
limit ?
for update
