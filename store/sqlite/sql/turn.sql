-- name: turn.find
select id from tusk_turn where queue = ? and tenant = ? and partition = ?;

-- name: turn.add
insert into tusk_turn (queue, tenant, partition) values (?, ?, ?) returning id;

-- name: turn.came
-- Pairs of a row and a place. The rows are few, and those for which nobody waits many.
update tusk_turn not indexed
set since = g.place
from (select value ->> 0 as id, value ->> 1 as place from json_each(?)) g
where tusk_turn.id = g.id and tusk_turn.since is null;

-- name: turn.left
-- Rows whose since may be of one who has left.
update tusk_turn
set since = (select min(place) from (
        select min(place) as place from tusk_task indexed by tusk_task_turn
        where turn = tusk_turn.id and priority = 0 and place is not null
        union all
        select min(place) from tusk_task indexed by tusk_task_place
        where turn = tusk_turn.id and priority <> 0 and place is not null))
where id in (select value from json_each(?));

-- name: turn.empty
-- Rows that say that somebody waits, where nobody does.
update tusk_turn
set since = null
where since is not null
  and not exists (select 1 from tusk_task t indexed by tusk_task_turn where t.turn = tusk_turn.id and t.place is not null);

-- name: grant.find
select t.num, t.kind, t.priority, t.failure, t.turn
from tusk_task t indexed by tusk_task_id
where t.id = ? and t.place is not null;

-- name: grant.take
-- A task where the last look saw it: a place is given out once. One that has failed is counted with its error, and
-- goes the other way.
update tusk_task set state = 3, lane = ?, pos = ?, run_at = ?, place = null
where num = ? and place = ? and turn = ? and priority = ? and failure is null;

-- name: grant.put
update tusk_task set state = 3, lane = ?, pos = ?, run_at = ?, place = null where num = ?;

-- name: turn.waiting
-- Since may be of one who has left: who has waited longest is looked up beside it.
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
-- All who wait, in the order of their lines.
select turn, priority, place, id, num from tusk_task indexed by tusk_task_turn
where place is not null
order by turn, priority, place
limit 0 + ?;

-- name: turn.empties
-- Rows that say that somebody waits: as many as are put right at once.
select id from tusk_turn indexed by tusk_turn_since where since is not null limit 1000;

-- name: turn.names
select u.id, u.queue, u.tenant, u.partition from json_each(?) j cross join tusk_turn u on u.id = j.value;

-- name: turn.holders
select turn, count(*) from tusk_task indexed by tusk_task_holds
where turn is not null and place is null and state < 6
group by turn;
