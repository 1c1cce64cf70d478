-- name: turn.find
select id from tusk_turn where queue = ? and tenant = ? and partition = ?;

-- name: turn.add
insert into tusk_turn (queue, tenant, partition) values (?, ?, ?) returning id;

-- name: turn.write
update tusk_turn
set held = held + ?1, since = (select min(pos) from tusk_line indexed by tusk_line_turn where turn = ?2)
where id = ?2
returning held, since;

-- name: turn.drop
delete from tusk_turn where id = ?;

-- name: turn.hold
update tusk_task set holds = 1 where num = ?;

-- name: turn.yield
update tusk_task set holds = null where id = ? and holds = 1;

-- name: turn.waiting
select id, queue, tenant, partition, held
from tusk_turn indexed by tusk_turn_since
where since is not null
order by since
limit 0 + ?;

-- name: turn.held
select id, queue, tenant, partition, held
from tusk_turn indexed by tusk_turn_held
where held > 0
order by queue, tenant, partition;

-- name: line.add
insert into tusk_line (turn, priority, task) values (?, ?, ?);

-- name: line.drop
delete from tusk_line where task = ?;

-- name: line.heads
select task from tusk_line indexed by tusk_line_order where turn = ? order by priority, pos limit 0 + ?;
