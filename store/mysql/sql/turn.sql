-- name: turn.insert
insert into tusk_turn (place, n, id, queue, tenant, part, holds, priority, at)
values :rows
on duplicate key update queue = values(queue), tenant = values(tenant), part = values(part), holds = values(holds),
    priority = values(priority), at = values(at)

-- name: turn.waiting
-- The oldest of each priority of a group is found by one step along the index, and so
-- is each of the first tasks.
select queue, tenant, part:heads
from (
    select queue, tenant, part, min(since) as since
    from (
        select queue, tenant, part, priority, min(at) as since
        from tusk_turn force index (tusk_turn_line)
        where holds = 0
        group by holds, queue, tenant, part, priority) p
    group by queue, tenant, part
    order by since
    limit ?) g
order by since

-- name: turn.head
(select id
from tusk_turn force index (tusk_turn_line)
where holds = 0 and queue = g.queue and tenant = g.tenant and part = g.part
order by priority, at, place, n
limit :nth, 1)

-- name: turn.more
select id
from tusk_turn force index (tusk_turn_line)
where holds = 0 and queue = ? and tenant = ? and part = ?
order by priority, at, place, n
limit ?, ?

-- name: turn.holders
select queue, tenant, part, count(*)
from tusk_turn force index (tusk_turn_line)
where holds = 1
group by queue, tenant, part

-- name: grant.find
select place, n, lap, id, queue, priority
from tusk_task force index (tusk_task_id)
where state = 2 and turn = 1 and needs = 0 and awaits = 0 and id in (:rows)
