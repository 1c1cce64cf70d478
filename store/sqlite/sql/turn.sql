-- name: turn.find
select id from tusk_turn where queue = ? and tenant = ? and partition = ?;

-- name: turn.add
insert into tusk_turn (queue, tenant, partition) values (?, ?, ?) returning id;

-- name: turn.came
-- The parameter is a short list of pairs of a row and a place. The index on since is not used, because many rows have
-- no since.
update tusk_turn not indexed
set since = g.place
from (select value ->> 0 as id, value ->> 1 as place from json_each(?)) g
where tusk_turn.id = g.id and tusk_turn.since is null;

-- name: turn.left
-- Updates rows whose since may belong to a task that no longer waits.
update tusk_turn
set since = (select min(place) from (
        select min(place) as place from tusk_task indexed by tusk_task_turn
        where turn = tusk_turn.id and priority = 0 and place is not null
        union all
        select min(place) from tusk_task indexed by tusk_task_place
        where turn = tusk_turn.id and priority <> 0 and place is not null))
where id in (select value from json_each(?));

-- name: turn.empty
-- Clears since in rows for which no task waits.
update tusk_turn
set since = null
where since is not null
  and not exists (select 1 from tusk_task t indexed by tusk_task_turn
                  where t.turn = tusk_turn.id and t.place is not null);

-- name: grant.find
select t.num, t.kind, t.priority, t.failure, t.turn
from tusk_task t indexed by tusk_task_id
where t.id = ? and t.place is not null;

-- name: grant.take
-- Grants a task that is still where it was last seen. That is certain because each place is given out only once. A
-- task that has failed is counted in a group of errors, and takes the path of grant.find and grant.put.
update tusk_task set state = 3, lane = ?, pos = ?, run_at = ?, place = null
where num = ? and place = ? and turn = ? and priority = ? and failure is null;

-- name: grant.put
update tusk_task set state = 3, lane = ?, pos = ?, run_at = ?, place = null where num = ?;

-- name: turn.waiting
-- since may belong to a task that no longer waits, so the task that has waited longest is also looked up.
select id, since,
       (select min(place) from tusk_task indexed by tusk_task_turn
        where turn = tusk_turn.id and priority = 0 and place is not null),
       (select min(place) from tusk_task indexed by tusk_task_place
        where turn = tusk_turn.id and priority <> 0 and place is not null),
       (select group_concat(hex(w.id), '') from (
           select id from tusk_task indexed by tusk_task_turn
           where turn = tusk_turn.id and place is not null
           order by priority, place
           limit 0 + ?) w)
from tusk_turn indexed by tusk_turn_since
where since is not null
order by since;

-- name: turn.few
-- All tasks that wait, in the order of their lines.
select turn, priority, place, id, num from tusk_task indexed by tusk_task_turn
where place is not null
order by turn, priority, place
limit 0 + ?;

-- name: turn.empties
-- Rows that say that a task waits, as many as are corrected at once.
select id from tusk_turn indexed by tusk_turn_since where since is not null limit 1000;

-- name: turn.names
select u.id, u.queue, u.tenant, u.partition from json_each(?) j cross join tusk_turn u on u.id = j.value;

-- name: turn.holders
select turn, count(*) from tusk_task indexed by tusk_task_holds
where turn is not null and place is null and state < 6
group by turn;
