-- name: need.add
insert into tusk_need (task, n, needed, on_failure, open) values (?, ?, ?, ?, ?);

-- name: need.meet
update tusk_need indexed by tusk_need_open set open = null where needed = ? and task = ? and open = 1;

-- name: need.list
select n.task, n.needed, n.on_failure, n.open
from json_each(?) j
cross join tusk_need n on n.task = unhex(j.value)
order by j.key, n.n;

-- name: need.children
select n.task, n.needed, n.on_failure
from json_each(?) j
cross join tusk_need n indexed by tusk_need_open on n.needed = unhex(j.value) and n.open = 1;

-- name: need.states
select n.needed, n.on_failure, iif(t.state = 3 and t.pos <= l.cursor, 4, t.state)
from tusk_need n
left join tusk_task t on t.id = n.needed
left join tusk_lane l on l.id = t.lane
where n.task = ?
order by n.n;

-- name: doubt.any
select 1 from tusk_doubt limit 1;

-- name: doubt.list
select task from tusk_doubt order by num limit 0 + ?;

-- name: doubt.add
insert into tusk_doubt (task) values (?);

-- name: doubt.drop
delete from tusk_doubt where num in (select num from tusk_doubt order by num limit 0 + ?);

-- name: need.drop
delete from tusk_need where task = ?;
