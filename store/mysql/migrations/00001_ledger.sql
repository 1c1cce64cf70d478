-- +goose NO TRANSACTION

-- The ledger. Instants are microseconds since 1970 by the server's clock, ids are
-- 16 bytes, names and texts are bytes (varbinary), so that nothing is compared by
-- a collation. `state` holds the numbers of store.State.
--
-- A task is written once and found by (place, n): place is the enqueue call it
-- came with, n its number in it. Whoever is available is listed in tusk_ready,
-- a row for up to 32 tasks of one call; a claim takes tasks off that list and
-- writes one row into tusk_lease, and does not touch the task. So a task of
-- state 3 is available while tusk_ready covers it, and running otherwise.
--
-- MySQL commits after every statement here; each can therefore be repeated.
--
-- Order of locks: leader, worker, key (by queue, tenant and key), ready, task, waiting
-- (only under its task's lock), inserts. Claims skip what is locked.

-- +goose Up

-- `lap` grows whenever a task comes back: a lease names it, so that one that
-- is over never fits again. `worker` is who ran the latest attempt. `needs` counts
-- what the task still needs; `needed` is 1 if others need it; `awaits` is 1 while
-- it waits for a running task of its key; `turn` is 1 if it runs only in its turn
-- and 2 while it has it.
-- What every task gets in the end is never null (0: not yet): an update that does
-- not change a row's size is done in place.
create table if not exists tusk_task (
    place         bigint not null,
    n             smallint not null,
    id            binary(16) not null,
    queue         varbinary(255) not null,
    kind          varbinary(255) not null,
    priority      smallint not null,
    state         tinyint not null,
    lap           int not null,
    attempt       int not null,
    crashes       int not null,
    enqueued_at   bigint not null,
    run_at        bigint not null,
    expires_at    bigint,
    claimed_at    bigint not null,
    finished_at   bigint not null,
    worker        binary(16) not null,
    failure       binary(16),
    fingerprint   varbinary(255),
    tenant        varbinary(255),
    tkey          varbinary(1024),
    tags          blob,
    settings      mediumblob,
    reason        blob,
    workflow      binary(16),
    part          varbinary(255),
    needs         int not null,
    needed        tinyint not null,
    awaits        tinyint not null,
    turn          tinyint not null,
    args          longblob,
    primary key (place, n),
    key tusk_task_id (id),
    key tusk_task_kind (queue, kind, id)
) engine = innodb default charset = utf8mb4
partition by range (place) (partition pmax values less than maxvalue);

-- Ended attempts: every one that failed and the latest of any outcome, unless
-- that one completed the task and left nothing to tell: then the task's own row
-- says it all.
create table if not exists tusk_attempt (
    place       bigint not null,
    n           smallint not null,
    lap         int not null,
    number      int not null,
    worker      binary(16) not null,
    started_at  bigint not null,
    ended_at    bigint not null,
    outcome     tinyint not null,
    error       longblob,
    trace       longblob,
    fingerprint varbinary(255),
    primary key (place, n, lap)
) engine = innodb default charset = utf8mb4
partition by range (place) (partition pmax values less than maxvalue);

-- What handlers recorded, as JSON, in the order of seq.
create table if not exists tusk_note (
    place bigint not null,
    n     smallint not null,
    seq   bigint not null,
    body  longblob not null,
    primary key (place, n, seq)
) engine = innodb default charset = utf8mb4
partition by range (place) (partition pmax values less than maxvalue);

-- What tasks need, in the order of i. Those that are open have not ended yet as
-- the task needs it.
create table if not exists tusk_need (
    place      bigint not null,
    n          smallint not null,
    i          smallint not null,
    needed     binary(16) not null,
    on_failure tinyint not null,
    open       tinyint not null,
    primary key (place, n, i),
    key tusk_need_needed (needed)
) engine = innodb default charset = utf8mb4
partition by range (place) (partition pmax values less than maxvalue);

-- What few tasks have and lists are asked by: t tenant, k key, g tag, w workflow,
-- e fingerprint, s state (of those that are neither available, running nor
-- completed).
create table if not exists tusk_label (
    label varbinary(1025) not null,
    id    binary(16) not null,
    place bigint not null,
    n     smallint not null,
    primary key (label, id, place),
    key tusk_label_task (place, n)
) engine = innodb default charset = utf8mb4
partition by range (place) (partition pmax values less than maxvalue);

-- The available tasks: those of `place` from `next` to `last`. `first` names the
-- row and stays; it is at most 31 below `last`.
create table if not exists tusk_ready (
    queue    varbinary(255) not null,
    priority smallint not null,
    at       bigint not null,
    place    bigint not null,
    first    smallint not null,
    next     smallint not null,
    last     smallint not null,
    lap      int not null,
    primary key (queue, priority, at, place, first),
    key tusk_ready_place (place, first)
) engine = innodb default charset = utf8mb4;

-- The scheduled and the retryable tasks.
create table if not exists tusk_waiting (
    run_at bigint not null,
    place  bigint not null,
    n      smallint not null,
    primary key (run_at, place, n)
) engine = innodb default charset = utf8mb4;

-- Pending tasks that need one that failed.
create table if not exists tusk_doomed (
    place bigint not null,
    n     smallint not null,
    primary key (place, n)
) engine = innodb default charset = utf8mb4;

-- The tasks that have their turn (holds = 1), and the pending ones that wait for
-- nothing else.
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

-- One row for each claim. It is never changed; spans.go says what `spans` holds.
create table if not exists tusk_lease (
    token      binary(16) not null,
    worker     binary(16) not null,
    claimed_at bigint not null,
    spans      longblob not null,
    primary key (token),
    key tusk_lease_worker (worker)
) engine = innodb default charset = utf8mb4;

-- Which tasks of a queue finished with an outcome, and when the last of them did.
-- Made from deltas, for Prune.
create table if not exists tusk_finished (
    queue       varbinary(255) not null,
    state       tinyint not null,
    finished_at bigint not null,
    seq         bigint not null,
    refs        longblob not null,
    primary key (queue, state, finished_at, seq)
) engine = innodb default charset = utf8mb4;

-- Every key of a tenant of which tasks are still kept: its unfinished task, if any, the rerun
-- that waits for that one, the task that ended last, and the newest source time in
-- nanoseconds.
create table if not exists tusk_key (
    queue          varbinary(255) not null,
    tenant         varbinary(255) not null,
    tkey           varbinary(1024) not null,
    task           binary(16),
    place          bigint not null default 0,
    n              smallint not null default 0,
    awaiting       binary(16),
    awaiting_place bigint not null default 0,
    awaiting_n     smallint not null default 0,
    ended          binary(16),
    source         bigint,
    tasks          bigint not null default 0, -- how many have the key, finished ones too
    primary key (queue, tenant, tkey)
) engine = innodb default charset = utf8mb4;

-- Running tasks that somebody wants stopped.
create table if not exists tusk_stop (
    place  bigint not null,
    n      smallint not null,
    lap     int not null,
    reason blob,
    primary key (place, n)
) engine = innodb default charset = utf8mb4;

-- `dead`: 1 declared dead, 2 signed off. `late_at`: when its next beat is overdue.
-- `watched`: when the server was started on which it holds a named lock, on a
-- connection of its own, see witness.go; 0: it holds none.
create table if not exists tusk_worker (
    id          binary(16) not null,
    host        varbinary(1024) not null,
    pid         bigint not null,
    queues      mediumblob not null,
    concurrency bigint not null,
    version     varbinary(1024) not null,
    kinds       mediumblob not null,
    started_at  bigint not null,
    beat_at     bigint not null,
    late_at     bigint not null,
    expires_at  bigint not null,
    dead        tinyint not null,
    watched     bigint not null,
    seq         bigint not null default 0, -- of the last beat
    -- a lease from before that holds does not name is not known to it; 0: it did not say
    since       bigint not null default 0,
    holds       longblob not null,         -- tokens
    hung        int not null default 0,
    primary key (id),
    key tusk_worker_dead (dead, expires_at)
) engine = innodb default charset = utf8mb4;

-- Row 1: who leads, and since when it has been renewed, as `version`. Row 2: the last version given to a record.
-- Row 3: the days that are being dropped, from place `term` to place `version`; see days.go. Who adds deltas up locks
-- row 3, too.
-- Row 4: the last number of tusk_end, as `term`, and whether somebody follows, as `version`.
create table if not exists tusk_leader (
    one        tinyint not null,
    id         binary(16),
    term       bigint not null,
    expires_at bigint not null,
    version    bigint not null,
    primary key (one)
) engine = innodb default charset = utf8mb4;
insert ignore into tusk_leader (one, id, term, expires_at, version) values
    (1, null, 0, 0, 0), (2, null, 0, 0, 0), (3, null, 0, 0, 0), (4, null, 0, 0, 0);

-- What each transaction changed in the three tables below, as JSON. They are
-- brought up to date by the leader, so that no two writers wait for one row.
create table if not exists tusk_delta (
    seq  bigint not null auto_increment,
    at   bigint not null,
    body longblob not null,
    primary key (seq)
) engine = innodb default charset = utf8mb4;

-- Ends of tasks for those who follow them (history.go), copied from tusk_delta by the
-- leader: `count` of a queue and state in one row. They are numbered; `last` is the last
-- number of a row.
create table if not exists tusk_end (
    last    bigint not null,
    count   int not null,
    queue   varbinary(255) not null,
    state   tinyint not null,
    at      bigint not null,
    rescued tinyint not null,
    refs    longblob not null,
    primary key (last)
) engine = innodb default charset = utf8mb4;

create table if not exists tusk_count (
    queue varbinary(255) not null,
    state tinyint not null,
    tasks bigint not null,
    primary key (queue, state)
) engine = innodb default charset = utf8mb4;

-- What attempts came to, by minute; stat.go says how durations are written.
create table if not exists tusk_stat (
    at        bigint not null,
    queue     varbinary(255) not null,
    kind      varbinary(255) not null,
    completed bigint not null,
    failed    bigint not null,
    discarded bigint not null,
    cancelled bigint not null,
    waited    blob not null,
    ran       blob not null,
    primary key (at, queue, kind)
) engine = innodb default charset = utf8mb4;

-- Failed attempts by queue, kind and fingerprint, of which `id` is a hash.
create table if not exists tusk_error (
    id          binary(16) not null,
    queue       varbinary(255) not null,
    kind        varbinary(255) not null,
    fingerprint varbinary(255) not null,
    count       bigint not null,
    waiting     bigint not null,
    dead        bigint not null,
    first       bigint not null,
    last        bigint not null,
    sample      longblob not null,
    sample_task binary(16) not null,
    primary key (id),
    key tusk_error_last (last)
) engine = innodb default charset = utf8mb4;

create table if not exists tusk_record (
    kind       varbinary(255) not null,
    name       varbinary(255) not null,
    version    bigint not null,
    body       longblob not null,
    updated_at bigint not null,
    primary key (kind, name)
) engine = innodb default charset = utf8mb4;

-- What happens most are procedures: one round trip each, and nothing is parsed.
-- They take lists as bytes, for neither server passes any other. The last that each
-- does is to say that it has ended: a statement that is killed inside a procedure may
-- look to the client as if all had been done.
drop procedure if exists tusk_claim;
drop procedure if exists tusk_complete;
drop procedure if exists tusk_finish;
drop procedure if exists tusk_grant;
drop procedure if exists tusk_watch;

-- +goose StatementBegin
create procedure tusk_claim(in requests longblob, in wanted int, in queues longblob, in per_row int)
    sql security invoker
begin
    -- Leases up to `wanted` available tasks of queues (each the length of its name,
    -- then the name) and returns them in order, passing over what others are taking.
    -- They go to `requests` (token, worker, how many at most), one after the other.
    -- `per_row`: how many tasks a row of tusk_ready may stand for. A task is read without a
    -- lock, and so may be read as it was before the transaction that made it available: its
    -- lap is another one than that of tusk_ready, which the lease names, or it is not there
    -- yet. So the end tells how many tasks were leased.
    declare the_queue varbinary(255);
    declare clock, the_at, the_place, run_place bigint;
    declare the_priority, the_first, the_next, the_last, run_first, run_last smallint;
    declare the_lap, run_lap, had, asked, seen, share, taking, given int;
    declare counts, spans longblob default '';
    declare ended tinyint;
    declare asked_for int default wanted;
    declare rows_ahead cursor for
        select priority, at, place, first, next, last, lap
        from tusk_ready force index (primary)
        where queue = the_queue
        order by priority, at, place, first
        limit asked
        for update skip locked;
    declare continue handler for not found set ended = 1;
    declare exit handler for sqlexception begin rollback; resignal; end;
    start transaction;
    set seen = 0;
    while seen < length(requests) do
        if coalesce((select dead from tusk_worker where id = substring(requests, seen + 17, 16)), 1) <> 0 then
            signal sqlstate '45000' set mysql_errno = 45001, message_text = 'the worker is dead';
        end if;
        set seen = seen + 36;
    end while;
    set clock = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)),
        share = conv(hex(substring(requests, 33, 4)), 16, 10);
    while wanted > 0 and length(queues) > 0 do
        set the_queue = substring(queues, 2, ord(queues)), queues = substring(queues, 2 + ord(queues)), had = wanted;
        repeat
            set asked = (wanted + per_row - 1) div per_row + (per_row > 1), seen = 0, ended = 0, run_place = null;
            open rows_ahead;
            cutting: loop
                fetch rows_ahead into the_priority, the_at, the_place, the_first, the_next, the_last, the_lap;
                if run_place is not null and (ended or wanted = 0 or the_place <> run_place
                    or the_next <> run_last + 1 or the_lap <> run_lap)
                then
                    select clock, run_lap, place, n, lap, id, queue, kind, priority, attempt, crashes, enqueued_at,
                        run_at, expires_at, tenant, tkey, tags, settings, workflow, part, turn, args
                    from tusk_task force index (primary)
                    where place = run_place and n between run_first and run_last
                    order by n;
                    set run_place = null;
                end if;
                if ended or wanted = 0 then
                    leave cutting;
                end if;
                set seen = seen + 1, taking = least(wanted, the_last - the_next + 1), wanted = wanted - taking;
                if the_next + taking > the_last then
                    delete from tusk_ready
                    where queue = the_queue and priority = the_priority and at = the_at and place = the_place
                        and first = the_first;
                else
                    update tusk_ready force index (primary) set next = the_next + taking
                    where queue = the_queue and priority = the_priority and at = the_at and place = the_place
                        and first = the_first;
                end if;
                if run_place is null then
                    set run_place = the_place, run_first = the_next, run_lap = the_lap;
                end if;
                set run_last = the_next + taking - 1;
                while taking > 0 do
                    set given = least(taking, share), taking = taking - given, share = share - given,
                        spans = concat(spans, unhex(concat(lpad(hex(the_place), 16, '0'), lpad(hex(the_lap), 8, '0'),
                            lpad(hex(the_next), 4, '0'), lpad(hex(the_next + given - 1), 4, '0')))),
                        the_next = the_next + given;
                    if share = 0 then
                        insert into tusk_lease (token, worker, claimed_at, spans)
                        values (left(requests, 16), substring(requests, 17, 16), clock, spans);
                        set spans = '', requests = substring(requests, 37),
                            share = conv(hex(substring(requests, 33, 4)), 16, 10);
                    end if;
                end while;
            end loop;
            close rows_ahead;
            set per_row = greatest((had - wanted) div greatest(seen, 1), 1);
        until wanted = 0 or seen < asked end repeat;
        if wanted < had then
            set counts = concat(counts, if(counts = '', '', ','),
                '{"queue":', json_quote(convert(the_queue using utf8mb4)),
                ',"state":"available","tasks":', wanted - had,
                '},{"queue":', json_quote(convert(the_queue using utf8mb4)),
                ',"state":"running","tasks":', had - wanted, '}');
        end if;
    end while;
    if spans <> '' then
        insert into tusk_lease (token, worker, claimed_at, spans)
        values (left(requests, 16), substring(requests, 17, 16), clock, spans);
    end if;
    if counts <> '' then
        insert into tusk_delta (at, body) values (clock, concat('{"counts":[', counts, ']}'));
    end if;
    commit;
    select 'tusk_claim' as ended, asked_for - wanted as tasks;
end
-- +goose StatementEnd

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
create procedure tusk_finish(in done longblob, in tasks int, in delta longblob, in leases longblob)
    sql security invoker
begin
    -- tusk_complete as a transaction by itself, which waits for no task that somebody holds.
    -- MariaDB is told so by a setting of the statement, MySQL by taking the
    -- locks first: a user's transaction, which calls tusk_complete itself, does wait.
    declare ahead longblob default done;
    declare locked int;
    declare exit handler for sqlexception begin rollback; resignal; end;
    start transaction;
    /*!80001 while length(ahead) > 0 do
        select count(*) into locked
        from (select 1 from tusk_task force index (primary)
            where place = conv(hex(substring(ahead, 1, 8)), 16, 10)
                and n between conv(hex(substring(ahead, 13, 2)), 16, 10) and conv(hex(substring(ahead, 15, 2)), 16, 10)
            for update nowait) t;
        set ahead = substring(ahead, 50);
    end while; */
    /*M!100600 set statement innodb_lock_wait_timeout = 0 for */ call tusk_complete(done, tasks, delta, leases);
    commit;
    select 'tusk_finish' as ended, tasks;
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

-- +goose StatementBegin
create procedure tusk_watch(in queues longblob, in pause double, in looks int)
    sql security invoker
begin
    -- Waits until one of the queues (each the length of its name, then the name) has available
    -- tasks, and returns which do, as bytes: their places in the list. It looks so many times,
    -- with a pause in seconds between, in which it holds nothing.
    declare the_queue varbinary(255);
    declare ahead, found longblob default '';
    declare i int;
    looking: loop
        set ahead = queues, i = 0;
        while length(ahead) > 0 do
            set the_queue = substring(ahead, 2, ord(ahead)), ahead = substring(ahead, 2 + ord(ahead));
            if exists (select 1 from tusk_ready force index (primary) where queue = the_queue limit 1) then
                set found = concat(found, char(i));
            end if;
            set i = i + 1;
        end while;
        set looks = looks - 1;
        if length(found) > 0 or looks <= 0 then
            leave looking;
        end if;
        do sleep(pause);
    end loop;
    select found;
    select 'tusk_watch' as ended, 0 as tasks;
end
-- +goose StatementEnd

-- +goose Down
drop procedure if exists tusk_watch;
drop procedure if exists tusk_grant;
drop procedure if exists tusk_finish;
drop procedure if exists tusk_complete;
drop procedure if exists tusk_claim;
drop table if exists tusk_record;
drop table if exists tusk_error;
drop table if exists tusk_stat;
drop table if exists tusk_count;
drop table if exists tusk_end;
drop table if exists tusk_delta;
drop table if exists tusk_leader;
drop table if exists tusk_worker;
drop table if exists tusk_stop;
drop table if exists tusk_key;
drop table if exists tusk_finished;
drop table if exists tusk_lease;
drop table if exists tusk_turn;
drop table if exists tusk_doomed;
drop table if exists tusk_waiting;
drop table if exists tusk_ready;
drop table if exists tusk_label;
drop table if exists tusk_need;
drop table if exists tusk_note;
drop table if exists tusk_attempt;
drop table if exists tusk_task;
