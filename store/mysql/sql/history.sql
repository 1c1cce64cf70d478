-- name: follow.lock
select term, version from tusk_leader where one = 4 for update

-- name: follow.write
update tusk_leader set term = ?, version = ? where one = 4

-- name: end.insert
insert into tusk_end (last, count, queue, state, at, rescued, refs) values (?, ?, ?, ?, ?, ?, ?)

-- name: end.forget
delete from tusk_end where last <= ?

-- name: end.list
select last, count, queue, state, at, rescued, refs
from tusk_end force index (primary)
where last > ?
order by last
limit ?

-- name: end.tasks
select id
from tusk_task force index (primary)
where :tasks
order by place, n
