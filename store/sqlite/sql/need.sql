-- name: need.parent
select num, state from tusk_task where id = ?;

-- name: need.mark
update tusk_task set needed = 1 where num = ? and needed is null;

-- name: need.add
insert into tusk_need (task, needed, on_failure, open) values (?, ?, ?, ?);

-- name: need.count
update tusk_task set needs = ? where num = ?;

-- name: need.list
select needed, on_failure from tusk_need indexed by tusk_need_task where task = ? order by num;

-- name: need.states
select n.needed, n.on_failure, iif(t.state = 3 and t.pos <= l.cursor, 4, t.state)
from tusk_need n indexed by tusk_need_task
left join tusk_task t on t.id = n.needed
left join tusk_lane l on l.id = t.lane
where n.task = ?
order by n.num;

-- name: need.left
select 1 from tusk_need indexed by tusk_need_left where task = ? and open is not null limit 1;

-- name: need.drop
delete from tusk_need where task = ?;

-- name: need.close
update tusk_need indexed by tusk_need_left set open = null where task = ? and open is not null;

-- name: need.waiting
select task, on_failure from tusk_need indexed by tusk_need_open where needed = ? and open is not null order by num;

-- name: need.end
-- Of 6, completed, everybody is content; 1 continues after a failure, 0 cancels.
update tusk_need indexed by tusk_need_open
set open = case when ?2 = 6 or on_failure = 1 then null when on_failure = 0 then 2 else open end
where needed = ?1 and open is not null;

-- name: need.any
select 1 from tusk_need indexed by tusk_need_failed where open = 2 limit 1;

-- name: need.failed
select task from tusk_need indexed by tusk_need_failed where open = 2 order by num limit 0 + ?;

-- name: need.failures
select num, needed from tusk_need indexed by tusk_need_task where task = ? and open = 2 order by num;

-- name: need.reopen
update tusk_need set open = 1 where num = ?;
