-- The ledger. Instants are microseconds since 1970, durations are microseconds, ids
-- are 16 bytes. `state` holds the numbers of store.State. A task in a lane has the
-- state available (3) until it ends. It is running once the cursor of its lane has
-- passed its position, so a claim writes nothing to tusk_task.

-- +goose Up
-- +goose StatementBegin

-- One row: the latest instant that any process has seen, a random number that
-- distinguishes this ledger from another one at the same path, the last version
-- given to a record, and the last place given out in a line.
create table tusk_clock (
    one      integer primary key check (one = 1),
    high     integer not null,
    ledger   integer not null,
    versions integer not null,
    places   integer not null
);
insert into tusk_clock (one, high, ledger, versions, places) values (1, 0, random(), 0, 0);

-- The kinds seen on each queue. With them, a task has a small number instead of
-- two names, and one index serves searches by queue and by kind.
create table tusk_kind (
    id    integer primary key,
    queue text not null,
    kind  text not null,
    unique (queue, kind)
);

-- The tasks of one queue and priority, in order. Positions are given out from
-- `tail` and never reused. Everything up to `cursor` has been claimed.
create table tusk_lane (
    id        integer primary key autoincrement,
    queue     text not null,
    priority  integer not null,
    tail      integer not null default 0,
    cursor    integer not null default 0,
    available integer not null default 0 check (available >= 0),
    running   integer not null default 0 check (running >= 0),
    unique (queue, priority)
);
create index tusk_lane_ready on tusk_lane (queue, priority) where available > 0;

-- `failure` is the error group of the latest failed attempt. `worker` is set on a
-- finished task whose last attempt has no row of its own in tusk_attempt.
-- `partition` is set on tasks that run in turns. `open` counts the tasks that this
-- one needs and that have not ended as it needs, and is null if it needs none.
-- `needed` is 1 if a task waits or has waited for this one. When a task without it
-- ends, there are no tasks that wait for it to look for. `turn` is the row of
-- tusk_turn in whose line the task waits, or in which it has its turn. `place` is its
-- place in that line, null once it has its turn. In a finished task `turn` means
-- nothing. `args` is the last column because SQLite reads all pages of a large value
-- into its cache to reach the columns behind it.
create table tusk_task (
    num         integer primary key,
    id          blob not null,
    kind        integer not null,
    priority    integer not null,
    state       integer not null,
    lane        integer,
    pos         integer,
    tenant      text,
    tags        text,
    key         text,
    settings    blob,
    attempt     integer not null default 0,
    crashes     integer not null default 0,
    reason      text,
    failure     integer,
    enqueued_at integer not null,
    run_at      integer not null,
    expires_at  integer,
    claimed_at  integer,
    finished_at integer,
    worker      blob,
    workflow    blob,
    partition   text,
    open        integer,
    needed      integer,
    turn        integer,
    place       integer,
    args        blob
);
create unique index tusk_task_id on tusk_task (id);
create index tusk_task_lane on tusk_task (lane, pos) where lane is not null;
create index tusk_task_kind on tusk_task (kind, id);
create index tusk_task_waiting on tusk_task (run_at) where state in (1, 5);
create index tusk_task_finished on tusk_task (kind, state, finished_at) where finished_at is not null;
create index tusk_task_state on tusk_task (state, id)
    where state = 1 or state = 2 or state = 5 or state = 7 or state = 8;
create index tusk_task_tenant on tusk_task (tenant, id) where tenant is not null;
create index tusk_task_key on tusk_task (key, id) where key is not null;
create index tusk_task_failure on tusk_task (failure, id) where failure is not null;
create index tusk_task_workflow on tusk_task (workflow, id) where workflow is not null;
-- The second index finds the task that has waited longest among those without the default priority.
create index tusk_task_turn on tusk_task (turn, priority, place, id) where place is not null;
create index tusk_task_place on tusk_task (turn, place) where place is not null and priority <> 0;
create index tusk_task_holds on tusk_task (turn) where turn is not null and place is null and state < 6;

create table tusk_tag (
    tag text not null,
    id  blob not null,
    primary key (tag, id)
) without rowid;

-- The keys of each tenant that have tasks: the unfinished task, if any, the rerun that waits for
-- it, the task that ended last, the newest source time in nanoseconds, and the number of tasks,
-- including finished ones.
create table tusk_key (
    queue    text not null,
    tenant   text not null,
    key      text not null,
    task     blob,
    awaiting blob,
    ended    blob,
    source   integer,
    tasks    integer not null,
    primary key (queue, tenant, key)
) without rowid;

-- The number of waiting tasks by queue and state. Available and running ones are counted by lane.
create table tusk_waiting (
    queue text not null,
    state integer not null,
    tasks integer not null,
    primary key (queue, state)
) without rowid;

-- One row for each lane of a claim. It holds the positions from `first` to `last`,
-- and `open` of their tasks are not finished. The table has few rows, one for each
-- lane of each open claim. So the rare searches by worker or position read all of it,
-- and claims and finishes do not pay for two indexes.
create table tusk_lease (
    token      blob not null,
    lane       integer not null,
    first      integer not null,
    last       integer not null,
    open       integer not null check (open >= 0),
    worker     blob not null,
    claimed_at integer not null,
    primary key (token, lane, first)
) without rowid;

-- Running tasks that were asked to stop.
create table tusk_stop (
    task   blob primary key,
    token  blob not null,
    worker blob not null,
    reason text
) without rowid;
create index tusk_stop_worker on tusk_stop (worker);

-- The tasks that a task needs, in the order in which it names them. `open` is 1 until
-- the needed task has ended as it should, then null.
create table tusk_need (
    task       blob not null,
    n          integer not null,
    needed     blob not null,
    on_failure integer not null,
    open       integer,
    primary key (task, n)
) without rowid;
create index tusk_need_open on tusk_need (needed, task) where open = 1;

-- Pending tasks that may need a task that failed.
create table tusk_doubt (
    num  integer primary key,
    task blob not null
);

-- One row for each queue, tenant and partition in which a task has a turn or waits
-- for one. `since` is the place of the task that has waited longest. A row stays until
-- it is pruned, so that it is not inserted and deleted again each time a tenant has tasks.
create table tusk_turn (
    id        integer primary key,
    queue     text not null,
    tenant    text not null,
    partition text not null,
    since     integer,
    unique (queue, tenant, partition)
);
create index tusk_turn_since on tusk_turn (since);

create table tusk_worker (
    id          blob primary key,
    host        text not null,
    pid         integer not null,
    queues      text not null,
    concurrency integer not null,
    version     text not null,
    kinds       text not null,
    started_at  integer not null,
    beat_at     integer not null,
    expires_at  integer not null,
    dead        integer not null default 0, -- 1 if declared dead, 2 if signed off
    seq         integer not null default 0, -- number of the last beat
    -- the worker does not know a lease that is older than since and not in holds; 0 if it has not reported
    since       integer not null default 0,
    holds       blob not null default x'',  -- tokens
    hung        integer not null default 0
) without rowid;
create index tusk_worker_living on tusk_worker (expires_at) where dead = 0;
create index tusk_worker_dead on tusk_worker (beat_at) where dead > 0;

create table tusk_leader (
    one        integer primary key check (one = 1),
    id         blob not null,
    term       integer not null,
    expires_at integer not null
);
insert into tusk_leader (one, id, term, expires_at) values (1, x'', 0, 0);

-- Ended attempts of each task: all that failed, and the latest whatever its outcome.
create table tusk_attempt (
    task        integer not null,
    n           integer not null,
    number      integer not null,
    worker      blob not null,
    started_at  integer not null,
    ended_at    integer not null,
    outcome     integer not null,
    error       text,
    trace       text,
    fingerprint text,
    primary key (task, n)
) without rowid;

-- Outputs and progress that handlers recorded.
create table tusk_note (
    task    integer primary key,
    output  blob,
    percent real,
    message text
);
create table tusk_log (
    task    integer not null,
    n       integer not null,
    at      integer not null,
    attempt integer not null,
    level   text not null,
    text    text not null,
    primary key (task, n)
) without rowid;

-- Failed attempts by fingerprint and kind, with counts of the waiting and dead tasks whose latest
-- failure is in the group. A group is pruned only when no task refers to it, because SQLite may
-- use its id again.
create table tusk_error (
    id          integer primary key,
    fingerprint text not null,
    kind        integer not null,
    count       integer not null,
    waiting     integer not null,
    dead        integer not null,
    first       integer not null,
    last        integer not null,
    sample      text not null,
    sample_task blob not null,
    unique (fingerprint, kind)
);
create index tusk_error_last on tusk_error (last);

-- The outcomes of attempts by minute and kind. For the histograms, see stat.go.
create table tusk_stat (
    at        integer not null,
    kind      integer not null,
    completed integer not null,
    failed    integer not null,
    discarded integer not null,
    cancelled integer not null,
    waited    blob not null,
    ran       blob not null,
    primary key (at, kind)
) without rowid;

create table tusk_record (
    kind       text not null,
    name       text not null,
    version    integer not null,
    body       blob not null,
    updated_at integer not null,
    primary key (kind, name)
) without rowid;

-- The ends of tasks, in commit order, for callers that follow them. Triggers write the rows
-- (sql/history.sql). They exist only while somebody follows.
create table tusk_end (
    seq     integer primary key autoincrement,
    task    blob not null,
    kind    integer not null,
    state   integer not null,
    at      integer not null,
    rescued integer not null
);

-- Deletes the history and the needs of a deleted task.
create trigger tusk_task_gone after delete on tusk_task begin
  delete from tusk_attempt where task = old.num;
  delete from tusk_note where task = old.num;
  delete from tusk_log where task = old.num;
  delete from tusk_need where task = old.id;
end;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
drop trigger if exists tusk_task_ended;
drop trigger if exists tusk_attempt_died;
drop table tusk_end;
drop table tusk_record;
drop table tusk_stat;
drop table tusk_error;
drop table tusk_log;
drop table tusk_note;
drop table tusk_attempt;
drop table tusk_leader;
drop table tusk_worker;
drop table tusk_turn;
drop table tusk_doubt;
drop table tusk_need;
drop table tusk_stop;
drop table tusk_lease;
drop table tusk_waiting;
drop table tusk_key;
drop table tusk_tag;
drop table tusk_task;
drop table tusk_lane;
drop table tusk_kind;
drop table tusk_clock;
-- +goose StatementEnd
