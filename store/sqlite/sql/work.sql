-- name: clock.read
select high, ledger, places from tusk_clock where one = 1;

-- name: clock.write
update tusk_clock set high = ?, places = ? where one = 1;

-- name: kind.find
select id from tusk_kind where queue = ? and kind = ?;

-- name: kind.add
insert into tusk_kind (queue, kind) values (?, ?) returning id;

-- name: kind.name
select queue, kind from tusk_kind where id = ?;

-- name: lane.find
select id, tail, cursor, available, running from tusk_lane where queue = ? and priority = ?;

-- name: lane.add
insert into tusk_lane (queue, priority) values (?, ?) returning id, tail, cursor, available, running;

-- name: lane.write
update tusk_lane set tail = ?, cursor = ?, available = ?, running = ? where id = ?;

-- name: waiting.write
insert into tusk_waiting (queue, state, tasks) values (?1, ?2, ?3)
on conflict (queue, state) do update set tasks = tasks + excluded.tasks;

-- name: waiting.drop
delete from tusk_waiting where queue = ? and state = ? and tasks = 0;
