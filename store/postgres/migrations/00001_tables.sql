-- up
set local lock_timeout = '5s';

-- Text is compared by its bytes, whatever the collation of the database. An index in the database's
-- collation is corrupted when an update of the operating system's C library changes the order.

create sequence tusk.task_n start 256 increment 256 cache 500;

-- The log. A row is either a task that is ready for an attempt or a pack: up to 255 tasks of
-- one enqueue that differ only in their ids and args. It is inserted once, and no attempt
-- updates it. n orders the tasks of one transaction. The tasks of a pack have consecutive ids
-- that begin with id, and the numbers after n, as if each had its own row. To change one of
-- them, first expand the pack into rows.
create table tusk.log (
  xid         xid8        not null default pg_current_xact_id(),
  lane        bigint      not null,
  n           bigint      not null default nextval('tusk.task_n'),
  id          uuid        not null,
  enqueued_at timestamptz not null default statement_timestamp(),
  attempt     int         not null default 0,
  crashes     int         not null default 0,
  kind        text collate "C" not null,
  args        bytea       not null,
  run_at      timestamptz, -- null means enqueued_at
  expires_at  timestamptz,
  claimed_at  timestamptz,
  tenant      text collate "C",
  key         text collate "C",
  tags        text[] collate "C",
  settings    bytea,
  failure     text collate "C", -- fingerprint of the latest failed attempt
  workflow    uuid,
  turn        boolean,     -- true if it runs only in its turn, otherwise null
  partition   text collate "C",
  packed      bytea[]      -- the args of each task of a pack
) partition by range (xid);

-- The args of a pack are stored in its row, not out of line.
alter table tusk.log
  alter packed set storage plain, alter kind set storage main, alter tags set storage main,
  alter settings set storage main;
create index task_lane on tusk.log (lane, xid, n);
create index task_id on tusk.log (id) where packed is null;
create index task_pack on tusk.log (id) where packed is not null;
create index task_workflow on tusk.log (workflow) where workflow is not null;

-- The log's segments. A segment holds the xids from the end of the previous one up to, but not
-- including, hi. The last one has no hi, so that an insert never fails.
create table tusk.segment (
  name     text collate "C" not null primary key,
  hi       xid8,
  made_xid xid8        not null default pg_current_xact_id(),
  made_at  timestamptz not null default clock_timestamp()
);

-- The tables of segments that consist of more than one. Queues whose tasks are kept for another
-- time than the rest have a table of their own, which is dropped when their tasks expire.
create table tusk.segment_part (
  name    text collate "C" not null primary key,
  segment text collate "C" not null,
  queues  bigint[]          -- null means all queues that the segment's other tables do not name
);

-- Queues whose completed tasks are kept for a much shorter or a much longer time than others.
-- A change affects only segments that are made later.
create table tusk.class (
  queue bigint not null primary key,
  class text collate "C" not null check (class in ('short', 'long'))
);

-- The queue names of lanes. A lane may have several rows, so that no writer waits for another. A
-- row whose lane has had no task since idle_at is deleted once the transactions below idle_xid
-- have ended. A transaction that names the lane in the meantime adds a row.
create table tusk.lane (
  id       bigint not null,
  queue    text collate "C" not null,
  idle_at  timestamptz,
  idle_xid xid8
);
create index lane_id on tusk.lane (id);

-- How far a lane has been claimed, as its newest row says. Log rows visible in done are claimed.
-- While win is set, so are rows visible in win up to (at_xid, at_n).
create table tusk.lane_position (
  lane    bigint      not null,
  no      bigint      not null,
  done    pg_snapshot not null,
  win     pg_snapshot,
  at_xid  xid8        not null,
  at_n    bigint      not null,
  claimed bigint      not null, -- rows that left the lane since its beginning
  primary key (lane, no)
);

-- How many tasks were added to a lane, counting those that are visible in seen.
create table tusk.lane_tally (
  lane  bigint      not null primary key,
  seen  pg_snapshot not null,
  added bigint      not null
);

-- Below, lists of tasks are written as runs. Run i is counts[i] tasks with consecutive ids, the
-- first of which is firsts[i]. counts is null if each run is one task. Runs are sorted, and
-- values for each task are in the order of the ids.

-- Batches that workers hold, as runs. open has a bit for each task. Null means all ones.
create table tusk.lease (
  token      uuid        not null,
  lane       bigint      not null,
  worker     uuid        not null,
  claimed_at timestamptz not null,
  lo         xid8        not null,
  hi         xid8        not null,
  open       varbit,
  firsts     uuid[]      not null,
  counts     int[],
  primary key (token, lane)
);
alter table tusk.lease set (toast_tuple_target = 8160, fillfactor = 80);
alter table tusk.lease alter firsts set storage external;

-- Counts insertions into finished and open_need. It is advanced before each insertion, so that
-- nobody needs to read these tables while it has no value.
create sequence tusk.beside;

-- Attempts that were ended within a user's transaction.
create table tusk.finished (
  token uuid not null,
  id    uuid not null,
  primary key (token, id)
);

-- The results of flushes. A row holds the completed tasks of one lease, as runs. node is the
-- number of the narrowest dyadic interval of xids that contains the batch, so that about fifty
-- index probes find the batch of a task.
create table tusk.outcome (
  xid         xid8        not null default pg_current_xact_id(),
  lane        bigint      not null,
  node        bigint      not null,
  lo          xid8        not null, -- the lowest xid of the batch
  token       uuid        not null,
  worker      uuid        not null,
  claimed_at  timestamptz not null,
  finished_at timestamptz not null,
  keyed       int         not null, -- how many of the tasks have a key
  stats       bytea,                -- statistics of the whole flush, in its first row
  firsts      uuid[]      not null,
  counts      int[],
  ago         int[]                 -- milliseconds before finished_at, null means all zero
);
alter table tusk.outcome set (toast_tuple_target = 8160);
alter table tusk.outcome alter firsts set storage external;
create index outcome_node on tusk.outcome (lane, node);
create index outcome_xid on tusk.outcome (xid);

-- Statistics by minute, by hour and by day, so that a chart reads one row for each of its points
-- however many flushes there were. Rows that are not summed up yet are of flushes that were pruned
-- before, and of tasks that were cancelled in place of a retry.
create table tusk.stat (
  at      timestamptz not null,
  minutes int         not null default 0, -- length of the interval, 0 if not summed up yet
  stats   bytea       not null
);
create index stat_at on tusk.stat (minutes, at);

-- The statistics of flushes with xids below upto are summed up, except those of flushes that were
-- still in progress at the time, whose xids are in late.
create table tusk.stat_end (
  one  boolean not null primary key default true check (one),
  upto xid8    not null,
  late xid8[]  not null default '{}'
);
insert into tusk.stat_end (upto) values ('0');

-- Tasks that may not run yet: scheduled, pending and retryable ones.
create table tusk.waiting (
  id          uuid        not null primary key,
  state       smallint    not null,
  lane        bigint      not null,
  run_at      timestamptz not null,
  n           bigint      not null default nextval('tusk.task_n'),
  enqueued_at timestamptz not null,
  attempt     int         not null,
  crashes     int         not null,
  kind        text collate "C" not null,
  args        bytea       not null,
  expires_at  timestamptz,
  claimed_at  timestamptz,
  tenant      text collate "C",
  key         text collate "C",
  tags        text[] collate "C",
  settings    bytea,
  failure     text collate "C",
  workflow    uuid,
  turn        boolean,
  partition   text collate "C",
  line        timestamptz -- since when it waits only for its turn, null if it does not
);
create index waiting_due on tusk.waiting (run_at, n) where state <> 2;
create index waiting_lane on tusk.waiting (lane, state, id);
create index waiting_workflow on tusk.waiting (workflow) where workflow is not null;
create index waiting_line on tusk.waiting ((lane >> 16), coalesce(tenant, ''), coalesce(partition, ''), lane, line, n)
  where line is not null;

-- The tasks that a task needs, in the order in which it names them. Kept as long as the task.
create table tusk.need (
  child  uuid     not null,
  place  int      not null,
  parent uuid     not null,
  policy smallint not null,
  primary key (child, place)
);

-- The needs that are not met. Their children are pending tasks in waiting.
create table tusk.open_need (
  parent uuid     not null,
  child  uuid     not null,
  policy smallint not null,
  primary key (parent, child)
);
create index open_need_child on tusk.open_need (child);

-- Open needs that have to be checked, because the parent may have ended unnoticed or has failed.
-- A need gets a new n whenever there is something new to check.
create sequence tusk.doubt_n;

create table tusk.doubt (
  child  uuid   not null,
  parent uuid   not null,
  n      bigint not null default nextval('tusk.doubt_n'),
  primary key (child, parent)
);
create index doubt_n_order on tusk.doubt (n);

-- A transaction that was writing when a task ended may have seen it unfinished. Tasks whose end is
-- visible in over ended before any transaction that is open now began to write. The same will be
-- true of next once all transactions below upto have ended.
create table tusk.grace (
  one  boolean     not null primary key default true check (one),
  over pg_snapshot not null default '1:1:',
  next pg_snapshot not null default '1:1:',
  upto xid8        not null default '0'
);
insert into tusk.grace default values;

-- Tasks that have their turn: it was granted, and since then they have neither ended nor been postponed.
create table tusk.turn (
  id        uuid   not null primary key,
  queue     bigint not null,
  tenant    text collate "C" not null,
  partition text collate "C" not null
);

-- Tasks that did not end by plain completion: dead letters, cancelled tasks, and completed tasks
-- whose counts of attempts and crashes the log does not give.
create table tusk.dead (
  id          uuid        not null primary key,
  state       smallint    not null,
  lane        bigint      not null,
  run_at      timestamptz not null,
  enqueued_at timestamptz not null,
  attempt     int         not null,
  crashes     int         not null,
  kind        text collate "C" not null,
  args        bytea       not null,
  expires_at  timestamptz,
  claimed_at  timestamptz,
  tenant      text collate "C",
  key         text collate "C",
  tags        text[] collate "C",
  settings    bytea,
  failure     text collate "C",
  reason      text collate "C" not null,
  finished_at timestamptz not null,
  workflow    uuid,
  turn        boolean,
  partition   text collate "C",
  xid         xid8        not null default pg_current_xact_id() -- of the transaction that ended it
);
create index dead_finished on tusk.dead (finished_at);
create index dead_xid on tusk.dead (xid);
create index dead_workflow on tusk.dead (workflow) where workflow is not null;

-- Ended attempts, except plain completions, which are in outcome.
create table tusk.attempt (
  n           bigint      not null generated always as identity,
  id          uuid        not null,
  number      int         not null,
  worker      uuid        not null,
  started_at  timestamptz not null,
  ended_at    timestamptz not null,
  state       smallint    not null,
  error       text collate "C" not null,
  trace       text collate "C" not null,
  fingerprint text collate "C" not null,
  xid         xid8        not null default pg_current_xact_id()
);
create index attempt_id on tusk.attempt (id, n);
create index attempt_xid on tusk.attempt (xid)
  where state >= 6 or error like 'worker ____________________________________ died';

-- Groups of similar errors.
create table tusk.failure (
  queue       bigint      not null,
  kind        text collate "C" not null,
  fingerprint text collate "C" not null,
  count       bigint      not null,
  first_at    timestamptz not null,
  last_at     timestamptz not null,
  sample      text collate "C" not null,
  sample_task uuid        not null,
  primary key (queue, kind, fingerprint)
);

-- Progress, output and logs that handlers recorded.
create table tusk.note (
  id       uuid  not null primary key,
  progress jsonb,
  output   bytea,
  logs     jsonb
);

-- The state of a key: the task that holds it, the task that runs next, the newest source time. A
-- key belongs to its tenant: the column key is what the function tenant_key makes of the two.
create table tusk.key (
  queue     bigint not null,
  key       text collate "C" not null,
  holder    uuid,
  awaiting  uuid,
  ended     uuid,
  source_at timestamptz,
  tasks     int    not null,
  primary key (queue, key)
);

-- Running tasks that were asked to stop. The chore tidy removes the rows of tasks that have ended.
create table tusk.stop (
  id     uuid not null primary key,
  token  uuid not null,
  reason text collate "C" not null
);

-- While attended equals the time at which this server was started, a session of the worker's
-- process holds the worker's lock. suspected_at is when the lock was first found free.
create table tusk.worker (
  id           uuid        not null primary key,
  about        jsonb       not null,
  started_at   timestamptz not null,
  beat_at      timestamptz not null,
  late_at      timestamptz not null, -- when the next beat is half an interval overdue
  expires_at   timestamptz not null,
  dead         boolean     not null,
  left_at      timestamptz,
  attended     timestamptz,
  suspected_at timestamptz,
  seq          bigint      not null default 0,  -- number of the last beat
  -- the worker does not know a lease that is older than since and not in holds; null if it has not reported
  since        timestamptz,
  holds        uuid[]      not null default '{}',
  program      text collate "C" not null default '' -- whose functions it calls
);
alter table tusk.worker set (fillfactor = 50);

create table tusk.leader (
  one        boolean     not null primary key default true check (one),
  id         uuid,
  term       bigint      not null,
  expires_at timestamptz not null,
  renewed_at timestamptz not null
);
insert into tusk.leader (id, term, expires_at, renewed_at) values (null, 0, '-infinity', '-infinity');
create sequence tusk.record_version;

create table tusk.record (
  kind       text collate "C" not null,
  name       text collate "C" not null,
  version    bigint      not null default nextval('tusk.record_version'),
  body       bytea       not null,
  updated_at timestamptz not null default clock_timestamp(),
  primary key (kind, name)
);

-- The server to which the transaction ids in the log belong, and the oldest schema version whose
-- programs work with this one. A migration that breaks them raises it.
create table tusk.server (
  one               boolean not null primary key default true check (one),
  system_identifier bigint  not null,
  oldest_program    bigint  not null default 2
);
insert into tusk.server (system_identifier) select system_identifier from pg_control_system();

-- The programs whose functions are installed, each in a schema of its own. The functions and
-- the view that users call by name refer to those of the published program.
create table tusk.program (
  name         text collate "C" not null primary key, -- name of the schema
  version      bigint      not null,             -- migration version that its functions need
  published    boolean     not null default false,
  installed_at timestamptz not null default clock_timestamp(),
  seen_at      timestamptz not null default clock_timestamp() -- when it was last known to run, within an hour
);

-- down
set local lock_timeout = '5s';
drop table tusk.program, tusk.server, tusk.record, tusk.leader, tusk.worker, tusk.stop, tusk.key, tusk.note,
  tusk.failure, tusk.attempt, tusk.dead, tusk.waiting, tusk.stat_end, tusk.stat, tusk.outcome, tusk.finished,
  tusk.lease, tusk.lane_tally, tusk.lane_position,
  tusk.lane, tusk.segment, tusk.segment_part, tusk.class, tusk.log, tusk.need, tusk.open_need, tusk.doubt, tusk.turn,
  tusk.grace;
drop sequence tusk.record_version, tusk.task_n, tusk.doubt_n, tusk.beside;
