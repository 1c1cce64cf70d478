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
-- Rows of turns that somebody waits for no longer.
update tusk_turn
set since = (select min(place) from (
        select min(place) as place from tusk_task indexed by tusk_task_turn
        where turn = tusk_turn.id and priority = 0 and place is not null
        union all
        select min(place) from tusk_task indexed by tusk_task_place
        where turn = tusk_turn.id and priority <> 0 and place is not null))
where id in (select value from json_each(?));

-- name: grant.find
select t.num, t.kind, t.priority, t.failure, t.turn
from json_each(?) j
cross join tusk_task t indexed by tusk_task_id on t.id = unhex(j.value)
where t.place is not null;

-- name: grant.put
update tusk_task set state = 3, lane = ?, pos = ?, run_at = ?, place = null where num = ?;

-- name: turn.waiting
select id, queue, tenant, partition,
       (select group_concat(hex(w.id), '') from (
           select id from tusk_task indexed by tusk_task_turn
           where turn = tusk_turn.id and place is not null
           order by priority, place
           limit 0 + ?2) w)
from tusk_turn indexed by tusk_turn_since
where since is not null
order by since
limit 0 + ?1;

-- name: turn.holders
select u.id, u.queue, u.tenant, u.partition, h.held
from (select turn, count(*) as held from tusk_task indexed by tusk_task_holds
      where turn is not null and place is null and state < 6
      group by turn) h
cross join tusk_turn u on u.id = h.turn;
