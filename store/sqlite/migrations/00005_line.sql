-- A task stands in line for its turn by itself: `turn` is the row that it waits for,
-- or has its turn from, and `place` where it stands, null once it has its turn. Who
-- has ended keeps `turn`, which says nothing any more. A place in line, and a turn,
-- are then an entry of an index each, and not a row of a table with three more and
-- a counter: nothing is to be written when a task ends but the task.

-- +goose Up

alter table tusk_clock add column places integer not null default 0;
alter table tusk_task rename column holds to turn;
alter table tusk_task add column place integer;

update tusk_task
set turn = (select u.id from tusk_kind k, tusk_turn u
            where k.id = tusk_task.kind and u.queue = k.queue and u.tenant = coalesce(tusk_task.tenant, '') and u.partition = tusk_task.partition)
where turn = 1 and exists (select 1 from tusk_turn where held > 0);
update tusk_task
set turn = l.turn, place = l.pos
from tusk_line l
where tusk_task.id = l.task;
update tusk_clock set places = (select coalesce(max(pos), 0) from tusk_line);
drop table tusk_line;

-- The second finds who has waited longest, beside those of the usual priority.
create index tusk_task_turn on tusk_task (turn, priority, place, id) where place is not null;
create index tusk_task_place on tusk_task (turn, place) where place is not null and priority <> 0;
create index tusk_task_holds on tusk_task (turn) where turn is not null and place is null and state < 6;

drop index tusk_turn_idle;
drop index tusk_turn_held;
drop index tusk_turn_since;
alter table tusk_turn drop column held;
create index tusk_turn_since on tusk_turn (since);

-- +goose Down

drop index tusk_turn_since;
alter table tusk_turn add column held integer not null default 0 check (held >= 0);
update tusk_turn
set held = (select count(*) from tusk_task indexed by tusk_task_holds
            where turn = tusk_turn.id and turn is not null and place is null and state < 6);
create index tusk_turn_since on tusk_turn (since) where since is not null;
create index tusk_turn_held on tusk_turn (id) where held > 0;
create index tusk_turn_idle on tusk_turn (id) where held = 0 and since is null;
drop index tusk_task_holds;

create table tusk_line (
    pos      integer primary key,
    turn     integer not null,
    priority integer not null,
    task     blob not null unique
);
insert into tusk_line (pos, turn, priority, task)
select place, turn, priority, id from tusk_task where place is not null;
create index tusk_line_turn on tusk_line (turn);
create index tusk_line_order on tusk_line (turn, priority);

drop index tusk_task_place;
drop index tusk_task_turn;
update tusk_task set turn = iif(state in (6, 7, 8) or place is not null, null, 1) where turn is not null;
alter table tusk_task drop column place;
alter table tusk_task rename column turn to holds;
alter table tusk_clock drop column places;
