-- +goose NO TRANSACTION

-- Tasks that wait for their turn and tasks that have it move to separate tables. So a grant moves no entry within an
-- index, and the end of a task deletes none. Each statement can be repeated, as in the first migration.

-- +goose Up

create table if not exists tusk_turn (
    place    bigint not null,
    n        smallint not null,
    id       binary(16) not null,
    queue    varbinary(255) not null,
    tenant   varbinary(255) not null,
    part     varbinary(255) not null,
    holds    tinyint not null,
    priority smallint not null,
    at       bigint not null,
    primary key (place, n),
    key tusk_turn_line (holds, queue, tenant, part, priority, at, place, n, id)
) engine = innodb default charset = utf8mb4;

-- The pending tasks that wait only for their turn. They have no label for their state: lists find them here.
create table if not exists tusk_line (
    place    bigint not null,
    n        smallint not null,
    id       binary(16) not null,
    lap      int not null,
    queue    varbinary(255) not null,
    tenant   varbinary(255) not null,
    part     varbinary(255) not null,
    priority smallint not null,
    at       bigint not null,
    primary key (place, n),
    key tusk_line_group (queue, tenant, part, priority, at, place, n, id, lap)
) engine = innodb default charset = utf8mb4;

-- The turns that tasks were granted (back = 0) and gave back (back = 1), one row for many tasks. For the contents of
-- `refs`, see held.go. A task has its turn if it was granted and not given back. The leader sums the rows up.
create table if not exists tusk_held (
    seq  bigint not null auto_increment,
    back tinyint not null,
    refs longblob not null,
    primary key (seq)
) engine = innodb default charset = utf8mb4;

insert ignore into tusk_line (place, n, id, lap, queue, tenant, part, priority, at)
select l.place, l.n, l.id, t.lap, l.queue, l.tenant, l.part, l.priority, l.at
from tusk_turn l straight_join tusk_task t force index (primary) on t.place = l.place and t.n = l.n
where l.holds = 0;

insert into tusk_held (back, refs)
select 0, concat(unhex(lpad(hex(place), 16, '0')), unhex(lpad(hex(n), 4, '0')),
    unhex(lpad(hex(length(queue)), 2, '0')), queue, unhex(lpad(hex(length(tenant)), 2, '0')), tenant,
    unhex(lpad(hex(length(part)), 2, '0')), part)
from tusk_turn
where holds = 1 and not exists (select 1 from tusk_held);

delete s from tusk_line l straight_join tusk_label s force index (primary)
    on s.label = 's2' and s.id = l.id and s.place = l.place;

drop table tusk_turn;

drop procedure if exists tusk_complete;
drop procedure if exists tusk_grant;

-- +goose Down
create table if not exists tusk_turn (
    place    bigint not null,
    n        smallint not null,
    id       binary(16) not null,
    queue    varbinary(255) not null,
    tenant   varbinary(255) not null,
    part     varbinary(255) not null,
    holds    tinyint not null,
    priority smallint not null,
    at       bigint not null,
    primary key (place, n),
    key tusk_turn_line (holds, queue, tenant, part, priority, at, place, n, id)
) engine = innodb default charset = utf8mb4;

insert ignore into tusk_turn (place, n, id, queue, tenant, part, holds, priority, at)
select place, n, id, queue, tenant, part, 0, priority, at from tusk_line;

insert ignore into tusk_turn (place, n, id, queue, tenant, part, holds, priority, at)
select place, n, id, queue, coalesce(tenant, ''), coalesce(part, ''), 1, priority, run_at from tusk_task where turn = 2;

insert ignore into tusk_label (label, id, place, n) select 's2', id, place, n from tusk_line;

drop table if exists tusk_line;
drop table if exists tusk_held;

drop procedure if exists tusk_complete;
drop procedure if exists tusk_grant;
