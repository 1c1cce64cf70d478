-- +goose NO TRANSACTION

-- Who waits for a turn, and who has one, are tables of their own: a grant moves no entry within an index, and the end
-- of a task deletes none. Each statement can be repeated, as in the first migration.

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

-- The pending tasks that wait for their turn, and for nothing else. They have no label that names their state: lists
-- find them here.
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

-- The turns that tasks were given (back = 0) and that they gave back (1), a row for many; held.go says what `refs`
-- holds. Who has a turn is what is left; the leader sums the rows up.
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

-- +goose StatementBegin
create procedure tusk_complete(in done longblob, in tasks int, in delta longblob, in leases longblob)
    sql security invoker
begin
    -- Completes tasks, all of them or none: `done` are place, lap, first, last,
    -- when they were claimed, how long ago they ended (in microseconds), the worker
    -- and whether they have a turn to give back (2), one after the other, by place;
    -- `leases` are token and time of those that are ended.
    declare clock bigint default timestampdiff(microsecond, '1970-01-01', utc_timestamp(6));
    declare the_place, the_claim, the_age bigint;
    declare the_first, the_last smallint;
    declare the_lap, the_turn, asked int;
    declare changed int default 0;
    declare back longblob default '';
    while length(done) > 0 do
        set the_place = conv(hex(substring(done, 1, 8)), 16, 10), the_lap = conv(hex(substring(done, 9, 4)), 16, 10),
            the_first = conv(hex(substring(done, 13, 2)), 16, 10), the_last = conv(hex(substring(done, 15, 2)), 16, 10),
            the_claim = conv(hex(substring(done, 17, 8)), 16, 10), the_age = conv(hex(substring(done, 25, 8)), 16, 10),
            the_turn = ord(substring(done, 49, 1)), asked = the_last - the_first + 1;
        update tusk_task force index (primary)
        set state = 6, attempt = attempt + 1, crashes = 0, reason = null, claimed_at = the_claim,
            worker = substring(done, 33, 16), finished_at = greatest(the_claim, clock - the_age), turn = turn div 2
        where place = the_place and n between the_first and the_last and lap = the_lap
            and state = 3 and needed = 0 and turn = the_turn
        limit asked; -- reads, and so locks, nothing behind the last: that task is somebody else's
        set changed = changed + row_count();
        if the_turn > 0 then
            set back = concat(back, substring(done, 1, 16));
        end if;
        set done = substring(done, 50);
    end while;
    if changed <> tasks then
        signal sqlstate '45000' set mysql_errno = 45002, message_text = 'some leases have ended';
    end if;
    if length(back) > 0 then
        insert into tusk_held (back, refs) values (1, back);
    end if;
    insert into tusk_delta (at, body) values (clock, delta);
    while length(leases) > 0 do
        delete from tusk_lease
        where token = substring(leases, 1, 16) and claimed_at = conv(hex(substring(leases, 17, 8)), 16, 10);
        set leases = substring(leases, 25);
    end while;
    select 'tusk_complete' as ended, changed as tasks;
end
-- +goose StatementEnd

-- +goose StatementBegin
create procedure tusk_grant(in granted longblob, in tasks int, in clock bigint)
    sql security invoker
begin
    -- Gives tasks their turn, all of them or none: `granted` are place, lap, first and
    -- last, one after the other, by place.
    declare the_place bigint;
    declare the_first, the_last smallint;
    declare the_lap, asked int;
    declare changed, locked int default 0;
    while length(granted) > 0 do
        set the_place = conv(hex(substring(granted, 1, 8)), 16, 10),
            the_lap = conv(hex(substring(granted, 9, 4)), 16, 10),
            the_first = conv(hex(substring(granted, 13, 2)), 16, 10),
            the_last = conv(hex(substring(granted, 15, 2)), 16, 10),
            asked = the_last - the_first + 1;
        /*!80001 select count(*) into locked from (select 1 from tusk_task force index (primary)
            where place = the_place and n between the_first and the_last for update nowait) t; */
        /*M!100600 set statement innodb_lock_wait_timeout = 0 for */ update tusk_task force index (primary)
        set state = 3, run_at = clock, turn = 2
        where place = the_place and n between the_first and the_last and lap = the_lap
            and state = 2 and turn = 1 and needs = 0 and awaits = 0
        limit asked; -- as in tusk_complete
        set changed = changed + row_count(), granted = substring(granted, 17);
        delete from tusk_line where place = the_place and n between the_first and the_last limit asked;
    end while;
    if changed <> tasks then
        signal sqlstate '45000' set mysql_errno = 45002, message_text = 'some tasks wait no longer';
    end if;
    select 'tusk_grant' as ended, changed as tasks;
end
-- +goose StatementEnd

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

-- +goose StatementBegin
create procedure tusk_complete(in done longblob, in tasks int, in delta longblob, in leases longblob)
    sql security invoker
begin
    -- Completes tasks, all of them or none: `done` are place, lap, first, last,
    -- when they were claimed, how long ago they ended (in microseconds), the worker
    -- and whether they have a turn to give back (2), one after the other, by place;
    -- `leases` are token and time of those that are ended.
    declare clock bigint default timestampdiff(microsecond, '1970-01-01', utc_timestamp(6));
    declare the_place, the_claim, the_age bigint;
    declare the_first, the_last smallint;
    declare the_lap, the_turn, asked int;
    declare changed int default 0;
    while length(done) > 0 do
        set the_place = conv(hex(substring(done, 1, 8)), 16, 10), the_lap = conv(hex(substring(done, 9, 4)), 16, 10),
            the_first = conv(hex(substring(done, 13, 2)), 16, 10), the_last = conv(hex(substring(done, 15, 2)), 16, 10),
            the_claim = conv(hex(substring(done, 17, 8)), 16, 10), the_age = conv(hex(substring(done, 25, 8)), 16, 10),
            the_turn = ord(substring(done, 49, 1)), asked = the_last - the_first + 1;
        update tusk_task force index (primary)
        set state = 6, attempt = attempt + 1, crashes = 0, reason = null, claimed_at = the_claim,
            worker = substring(done, 33, 16), finished_at = greatest(the_claim, clock - the_age), turn = turn div 2
        where place = the_place and n between the_first and the_last and lap = the_lap
            and state = 3 and needed = 0 and turn = the_turn
        limit asked; -- reads, and so locks, nothing behind the last: that task is somebody else's
        set changed = changed + row_count(), done = substring(done, 50);
        if the_turn > 0 then
            delete from tusk_turn where place = the_place and n between the_first and the_last;
        end if;
    end while;
    if changed <> tasks then
        signal sqlstate '45000' set mysql_errno = 45002, message_text = 'some leases have ended';
    end if;
    insert into tusk_delta (at, body) values (clock, delta);
    while length(leases) > 0 do
        delete from tusk_lease
        where token = substring(leases, 1, 16) and claimed_at = conv(hex(substring(leases, 17, 8)), 16, 10);
        set leases = substring(leases, 25);
    end while;
    select 'tusk_complete' as ended, changed as tasks;
end
-- +goose StatementEnd

-- +goose StatementBegin
create procedure tusk_grant(in granted longblob, in tasks int, in clock bigint)
    sql security invoker
begin
    -- Gives tasks their turn, all of them or none: `granted` are place, lap, first and
    -- last, one after the other, by place.
    declare the_place bigint;
    declare the_first, the_last smallint;
    declare the_lap, asked int;
    declare changed, locked int default 0;
    while length(granted) > 0 do
        set the_place = conv(hex(substring(granted, 1, 8)), 16, 10),
            the_lap = conv(hex(substring(granted, 9, 4)), 16, 10),
            the_first = conv(hex(substring(granted, 13, 2)), 16, 10),
            the_last = conv(hex(substring(granted, 15, 2)), 16, 10),
            asked = the_last - the_first + 1;
        /*!80001 select count(*) into locked from (select 1 from tusk_task force index (primary)
            where place = the_place and n between the_first and the_last for update nowait) t; */
        /*M!100600 set statement innodb_lock_wait_timeout = 0 for */ update tusk_task force index (primary)
        set state = 3, run_at = clock, turn = 2
        where place = the_place and n between the_first and the_last and lap = the_lap
            and state = 2 and turn = 1 and needs = 0 and awaits = 0
        limit asked; -- as in tusk_complete
        set changed = changed + row_count(), granted = substring(granted, 17);
        update tusk_turn force index (primary) set holds = 1
        where place = the_place and n between the_first and the_last;
    end while;
    if changed <> tasks then
        signal sqlstate '45000' set mysql_errno = 45002, message_text = 'some tasks wait no longer';
    end if;
    select 'tusk_grant' as ended, changed as tasks;
end
-- +goose StatementEnd
