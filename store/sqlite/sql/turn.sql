-- name: turn.find
select id from tusk_turn where queue = ? and tenant = ? and partition = ?;

-- name: turn.add
insert into tusk_turn (queue, tenant, partition) values (?, ?, ?) returning id;

-- name: turn.queue
select queue from tusk_turn where id = ?;

-- name: turn.came
update tusk_turn set since = coalesce(since, ?) where id = ?;

-- name: turn.yielded
update tusk_turn set held = held - ? where queue = ? and tenant = ? and partition = ?;

-- name: turn.left
update tusk_turn
set held = held + ?1, since = (select min(pos) from tusk_line indexed by tusk_line_turn where turn = ?2)
where id = ?2;

-- name: turn.yield
update tusk_task set holds = null where id = ? and holds = 1;

-- name: turn.waiting
select id, queue, tenant, partition, held
from tusk_turn indexed by tusk_turn_since
where since is not null
order by since
limit 0 + ?;

-- name: turn.holders
select id, queue, tenant, partition, held
from tusk_turn indexed by tusk_turn_held
where held > 0;

-- name: line.add
insert into tusk_line (turn, priority, task) values (?, ?, ?) returning pos;

-- name: line.drop
delete from tusk_line where task = ? returning turn, priority;

-- name: line.heads
select task from tusk_line indexed by tusk_line_order where turn = ? order by priority, pos limit 0 + ?;

-- name: grant.place
update tusk_task
set state = 3, lane = ?, pos = ?, run_at = ?, holds = 1
where id = ?
returning failure;
