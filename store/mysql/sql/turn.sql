-- name: line.insert
insert into tusk_line (place, n, id, lap, queue, tenant, part, priority, at)
values :rows

-- name: line.copy
insert into tusk_line (place, n, id, lap, queue, tenant, part, priority, at)
select place, n, id, lap, queue, coalesce(tenant, ''), coalesce(part, ''), priority, :now
from tusk_task force index (primary)
where :tasks

-- name: line.drop
delete l from (:tasks) x straight_join tusk_line l force index (primary) on l.place = x.place and l.n = x.n

-- name: held.add
insert into tusk_held (back, refs) values (?, ?)

-- name: held.read
select seq, back, refs from tusk_held

-- name: held.drop
delete h from tusk_held h force index (primary) where seq in (:rows)

-- name: turn.few
-- All tasks that wait, unless they are more than a limit. The primary key is used because InnoDB also reads the row of
-- an entry in another index that has just changed.
select place, n, lap, id, queue, tenant, part, priority, at
from tusk_line force index (primary)
where (select 1 from tusk_line force index (primary) limit ?, 1) is null

-- name: turn.groups
-- The oldest task of each priority of a group is found by one step along the index (see steps.go).
select queue, tenant, part, priority, min(at) as since
from tusk_line force index (tusk_line_group)
group by queue, tenant, part, priority

-- name: turn.learn
analyze no_write_to_binlog table tusk_line

-- name: turn.waiting
-- Each of the first tasks of a group is also found by one step.
select queue, tenant, part:heads
from (
    select queue, tenant, part, min(since) as since
    from (:groups) p
    group by queue, tenant, part
    order by since
    limit ?) g
order by since

-- name: turn.head
-- MySQL follows the index only if the whole order is named.
(select id
from tusk_line force index (tusk_line_group)
where queue = g.queue and tenant = g.tenant and part = g.part
order by queue, tenant, part, priority, at, place, n
limit :nth, 1)

-- name: turn.more
select place, n, lap, id, queue, tenant, part, priority, at
from tusk_line force index (tusk_line_group)
where queue = ? and tenant = ? and part = ?
order by priority, at, place, n
limit ?, ?

-- name: grant.find
select place, n, lap, id, queue, coalesce(tenant, ''), coalesce(part, ''), priority
from tusk_task force index (tusk_task_id)
where state = 2 and turn = 1 and needs = 0 and awaits = 0 and id in (:rows)
