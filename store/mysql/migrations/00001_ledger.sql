-- +goose NO TRANSACTION

-- The ledger. Instants are microseconds since 1970 by the server's clock, and ids
-- are 16 bytes. Names and texts are bytes (varbinary), so that no collation affects
-- comparisons. `state` holds the numbers of store.State.
--
-- A task is written once and found by (place, n): `place` identifies the enqueue
-- call that stored it, `n` is its number within the call. Available tasks are listed
-- in tusk_ready, in rows for up to 32 tasks of one call. A claim takes tasks off that
-- list and writes one row into tusk_lease, without touching the tasks. So a task of
-- state 3 is available while tusk_ready covers it, and running otherwise.
--
-- MySQL commits after every statement here, so each statement can be repeated.
--
-- Order of locks: leader, worker, key (by queue, tenant and key), ready, task, waiting
-- (only under its task's lock), inserts. Claims skip locked rows.

-- +goose Up

-- `lap` is incremented whenever a task returns to the queue. A lease names the lap,
-- so that a lease that has ended never matches again. `worker` ran the latest
-- attempt. `needs` counts the tasks that this one still needs. `needed` is 1 if other
-- tasks need it. `awaits` is 1 while it waits for a running task of its key. `turn` is
-- 1 if it runs only in its turn, and 2 while it has its turn.
-- Columns that every task gets eventually are never null (0 means not yet), because
-- an update that does not change the size of a row is done in place.
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

-- Ended attempts of each task: all that failed, and the latest whatever its outcome.
-- An attempt that completed the task without anything else to record has no row: the
-- task's row has all of its values.
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

-- Progress, output and logs that handlers recorded, as JSON, in the order of seq.
create table if not exists tusk_note (
    place bigint not null,
    n     smallint not null,
    seq   bigint not null,
    body  longblob not null,
    primary key (place, n, seq)
) engine = innodb default charset = utf8mb4
partition by range (place) (partition pmax values less than maxvalue);

-- The tasks that a task needs, in the order of i. `open` is 1 until the needed task has
-- ended as it should.
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

-- Attributes that few tasks have and that lists can filter by. The first letter of a
-- label names the attribute: t tenant, k key, g tag, w workflow, e fingerprint,
-- s state (only of tasks that are neither available nor running nor completed).
create table if not exists tusk_label (
    label varbinary(1025) not null,
    id    binary(16) not null,
    place bigint not null,
    n     smallint not null,
    primary key (label, id, place),
    key tusk_label_task (place, n)
) engine = innodb default charset = utf8mb4
partition by range (place) (partition pmax values less than maxvalue);

-- The available tasks: those of `place` from `next` to `last`. `first` identifies the
-- row and does not change. It is at most 31 below `last`.
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

-- Scheduled and retryable tasks.
create table if not exists tusk_waiting (
    run_at bigint not null,
    place  bigint not null,
    n      smallint not null,
    primary key (run_at, place, n)
) engine = innodb default charset = utf8mb4;

-- Pending tasks that need a task that failed.
create table if not exists tusk_doomed (
    place bigint not null,
    n     smallint not null,
    primary key (place, n)
) engine = innodb default charset = utf8mb4;

-- The tasks that have their turn (holds = 1), and the pending tasks that wait only for
-- their turn (holds = 0).
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

-- One row for each claim. It is never updated. For the contents of `spans`, see spans.go.
create table if not exists tusk_lease (
    token      binary(16) not null,
    worker     binary(16) not null,
    claimed_at bigint not null,
    spans      longblob not null,
    primary key (token),
    key tusk_lease_worker (worker)
) engine = innodb default charset = utf8mb4;

-- The tasks of a queue that finished in a state, and when the last of them did. Prune
-- uses these rows, which are made from tusk_delta.
create table if not exists tusk_finished (
    queue       varbinary(255) not null,
    state       tinyint not null,
    finished_at bigint not null,
    seq         bigint not null,
    refs        longblob not null,
    primary key (queue, state, finished_at, seq)
) engine = innodb default charset = utf8mb4;

-- The keys of each tenant that have tasks: the unfinished task, if any, the rerun that waits for
-- it, the task that ended last, and the newest source time in nanoseconds.
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
    tasks          bigint not null default 0, -- number of tasks with the key, including finished ones
    primary key (queue, tenant, tkey)
) engine = innodb default charset = utf8mb4;

-- Running tasks that were asked to stop.
create table if not exists tusk_stop (
    place  bigint not null,
    n      smallint not null,
    lap     int not null,
    reason blob,
    primary key (place, n)
) engine = innodb default charset = utf8mb4;

-- `dead` is 1 if the worker was declared dead, and 2 if it signed off. `late_at` is when
-- its next beat is overdue. `watched` is the start time of the server on which the worker
-- holds a named lock, on a connection of its own (see witness.go), or 0 if it holds none.
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
    seq         bigint not null default 0, -- number of the last beat
    -- the worker does not know a lease that is older than since and not in holds; 0 if it has not reported
    since       bigint not null default 0,
    holds       longblob not null,         -- tokens
    hung        int not null default 0,
    primary key (id),
    key tusk_worker_dead (dead, expires_at)
) engine = innodb default charset = utf8mb4;

-- Row 1: the leader. `version` is when its term was last renewed.
-- Row 2: `version` is the last version given to a record.
-- Row 3: the days that are being dropped, from place `term` to place `version` (see days.go). The transaction that adds
-- up deltas locks this row, too.
-- Row 4: `term` is the last number of tusk_end, and `version` says whether somebody follows the ends of tasks.
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

-- What each transaction adds to tusk_end, tusk_count, tusk_stat, tusk_error and
-- tusk_finished, as JSON. The leader applies it, so that no two writers wait for one row.
create table if not exists tusk_delta (
    seq  bigint not null auto_increment,
    at   bigint not null,
    body longblob not null,
    primary key (seq)
) engine = innodb default charset = utf8mb4;

-- The ends of tasks for callers that follow them (history.go). The leader copies them from
-- tusk_delta. A row has `count` ends of one queue and state. Ends are numbered, and `last`
-- is the last number in the row.
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

-- The outcomes of attempts by minute. For the encoding of durations, see stat.go.
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

-- Failed attempts by queue, kind and fingerprint. `id` is a hash of the three.
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
