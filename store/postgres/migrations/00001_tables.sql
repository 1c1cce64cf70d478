-- up
set local lock_timeout = '5s';

-- Text is compared by its bytes, whatever the collation of the database: an index in that
-- collation is damaged when the operating system's C library learns another order.

create sequence tusk.task_n start 256 increment 256 cache 500;

-- The log: a row is a task that is ready for an attempt, or a pack: up to 255 tasks of
-- one enqueue that differ in their ids and args alone. It is inserted once and never
-- updated by an attempt; n orders the tasks of one transaction. A pack's tasks have the
-- ids from id on and the numbers after n, as if each were a row; whoever changes one of
-- them makes rows of them first.
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
  run_at      timestamptz, -- null: enqueued_at
  expires_at  timestamptz,
  claimed_at  timestamptz,
  tenant      text collate "C",
  key         text collate "C",
  tags        text[] collate "C",
  settings    bytea,
  failure     text collate "C", -- fingerprint of the latest failed attempt
  workflow    uuid,
  turn        boolean,     -- it runs only in its turn; null: it does not
  partition   text collate "C",
  packed      bytea[]      -- of a pack: the args of each
) partition by range (xid);

-- A pack stays in one piece.
alter table tusk.log
  alter packed set storage plain, alter kind set storage main, alter tags set storage main,
  alter settings set storage main;
create index task_lane on tusk.log (lane, xid, n);
create index task_id on tusk.log (id) where packed is null;
create index task_pack on tusk.log (id) where packed is not null;
create index task_workflow on tusk.log (workflow) where workflow is not null;

-- The log's segments. A segment holds the xids below hi, from where the one
-- before it ends; the last one has no hi, so that an insert never fails.
create table tusk.segment (
  name     text collate "C" not null primary key,
  hi       xid8,
  made_xid xid8        not null default pg_current_xact_id(),
  made_at  timestamptz not null default clock_timestamp()
);

-- The tables of those segments that are no single one: the tasks of queues that are
-- kept for another time than the rest have their own, which goes when they do.
create table tusk.segment_part (
  name    text collate "C" not null primary key,
  segment text collate "C" not null,
  queues  bigint[]          -- null: all that the others do not name
);

-- Queues whose completed tasks are kept for much less than others, or for much
-- longer. Segments that are made from now on are made so.
create table tusk.class (
  queue bigint not null primary key,
  class text collate "C" not null check (class in ('short', 'long'))
);

-- The names behind lanes. Rows may come twice; nobody waits for anybody here. A row whose lane
-- has had no task since idle_at goes when the transactions below idle_xid have ended. Who
-- names the lane meanwhile adds a row.
create table tusk.lane (
  id       bigint not null,
  queue    text collate "C" not null,
  idle_at  timestamptz,
  idle_xid xid8
);
create index lane_id on tusk.lane (id);

-- How far a lane has been claimed: its newest row. Rows visible in done are
-- claimed; while win is set, those visible in win up to (at_xid, at_n) are too.
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

-- How many rows a lane got, as far as they are visible in seen.
create table tusk.lane_tally (
  lane  bigint      not null primary key,
  seen  pg_snapshot not null,
  added bigint      not null
);

-- Tasks in runs: run i is counts[i] tasks whose ids follow one another, from firsts[i]
-- on; counts is null where each run is one task. Runs are sorted, and what is said of
-- each task stands in the order of their ids.

-- Batches that workers hold, in runs. open has a bit for each task, and null stands for
-- all ones.
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

-- Counts what was put into finished and open_need, before it was: while it has no
-- value, nobody need look there.
create sequence tusk.beside;

-- Attempts that were ended inside somebody's open transaction.
create table tusk.finished (
  token uuid not null,
  id    uuid not null,
  primary key (token, id)
);

-- What became of a flush, a row per lease: the tasks that were completed, in runs.
-- node names the narrowest dyadic interval of xids that holds the batch, so
-- that the batch of a task is found by some fifty probes of an index.
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
  stats       bytea,                -- of the whole flush, in its first row
  firsts      uuid[]      not null,
  counts      int[],
  ago         int[]                 -- milliseconds before finished_at; null: all zero
);
alter table tusk.outcome set (toast_tuple_target = 8160);
alter table tusk.outcome alter firsts set storage external;
create index outcome_node on tusk.outcome (lane, node);
create index outcome_xid on tusk.outcome (xid);

-- Statistics, summed up by minute, by hour and by day, so that a chart costs as many
-- rows as it has points however many flushes there were; and those of flushes that
-- were pruned before.
create table tusk.stat (
  at      timestamptz not null,
  minutes int         not null default 0, -- how long that takes; 0: of one flush, not summed up yet
  stats   bytea       not null
);
create index stat_at on tusk.stat (minutes, at);

-- The statistics of flushes whose xid is below upto are summed up, but for those that
-- were still being written.
create table tusk.stat_end (
  one  boolean not null primary key default true check (one),
  upto xid8    not null,
  late xid8[]  not null default '{}'
);
insert into tusk.stat_end (upto) values ('0');

-- Tasks that may not run yet.
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
  line        timestamptz -- since when it waits for its turn and for nothing else; null: it does not
);
create index waiting_due on tusk.waiting (run_at, n) where state <> 2;
create index waiting_lane on tusk.waiting (lane, state, id);
create index waiting_workflow on tusk.waiting (workflow) where workflow is not null;
create index waiting_line on tusk.waiting ((lane >> 16), coalesce(tenant, ''), coalesce(partition, ''), lane, line, n)
  where line is not null;

-- What tasks need, in the order in which they named it. Kept with the task.
create table tusk.need (
  child  uuid     not null,
  place  int      not null,
  parent uuid     not null,
  policy smallint not null,
  primary key (child, place)
);

-- Those needs that are not met. Their children are among the waiting, pending.
create table tusk.open_need (
  parent uuid     not null,
  child  uuid     not null,
  policy smallint not null,
  primary key (parent, child)
);
create index open_need_child on tusk.open_need (child);

-- Open needs that somebody has to look at: the parent may have ended unnoticed,
-- or it has failed. n is drawn anew whenever there is something new to see.
create sequence tusk.doubt_n;

create table tusk.doubt (
  child  uuid   not null,
  parent uuid   not null,
  n      bigint not null default nextval('tusk.doubt_n'),
  primary key (child, parent)
);
create index doubt_n_order on tusk.doubt (n);

-- Transactions that wrote when a task ended may have seen it unfinished. What ended in over
-- did so before any transaction that is open now began to write; what ended in next did once
-- the xids below upto have ended.
create table tusk.grace (
  one  boolean     not null primary key default true check (one),
  over pg_snapshot not null default '1:1:',
  next pg_snapshot not null default '1:1:',
  upto xid8        not null default '0'
);
insert into tusk.grace default values;

-- Tasks that have their turn: granted, and neither ended nor put off since.
create table tusk.turn (
  id        uuid   not null primary key,
  queue     bigint not null,
  tenant    text collate "C" not null,
  partition text collate "C" not null
);

-- Tasks that ended in another way than by plain completion: dead letters,
-- cancelled ones, and completions with odd counts.
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
  xid         xid8        not null default pg_current_xact_id() -- that ended it
);
create index dead_finished on tusk.dead (finished_at);
create index dead_xid on tusk.dead (xid);
create index dead_workflow on tusk.dead (workflow) where workflow is not null;

-- Ended attempts but for plain completions, which outcome tells.
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

-- Groups of like errors.
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

-- What handlers recorded.
create table tusk.note (
  id       uuid  not null primary key,
  progress jsonb,
  output   bytea,
  logs     jsonb
);

-- What is known of a key: who holds it, what runs next, the newest source time. A key
-- belongs to its tenant: `key` is what tusk.tenant_key makes of the two.
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

-- Running tasks that somebody wants stopped. When they have ended, tidy removes them.
create table tusk.stop (
  id     uuid not null primary key,
  token  uuid not null,
  reason text collate "C" not null
);

-- While attended is when this server was started, a session of the worker's process
-- holds the worker's lock; suspected_at is when it was first found free.
create table tusk.worker (
  id           uuid        not null primary key,
  about        jsonb       not null,
  started_at   timestamptz not null,
  beat_at      timestamptz not null,
  late_at      timestamptz not null, -- when the next beat is overdue by half
  expires_at   timestamptz not null,
  dead         boolean     not null,
  left_at      timestamptz,
  attended     timestamptz,
  suspected_at timestamptz,
  seq          bigint      not null default 0,  -- of the last beat
  -- a lease from before that holds does not name is not known to it; null: it did not say
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

-- The server whose transaction ids the log speaks of, and the oldest version of the
-- schema whose programs work with this one: a migration that breaks them raises it.
create table tusk.server (
  one               boolean not null primary key default true check (one),
  system_identifier bigint  not null,
  oldest_program    bigint  not null default 2
);
insert into tusk.server (system_identifier) select system_identifier from pg_control_system();

-- The programs whose functions are installed, each in a schema of its own. The functions and
-- the view that users call by name lead to those of one.
create table tusk.program (
  name         text collate "C" not null primary key, -- of the schema
  version      bigint      not null,             -- of the migrations that its functions need
  published    boolean     not null default false,
  installed_at timestamptz not null default clock_timestamp(),
  seen_at      timestamptz not null default clock_timestamp() -- when one was last known to run, to the hour
);

-- down
set local lock_timeout = '5s';
drop table tusk.program, tusk.server, tusk.record, tusk.leader, tusk.worker, tusk.stop, tusk.key, tusk.note,
  tusk.failure, tusk.attempt, tusk.dead, tusk.waiting, tusk.stat_end, tusk.stat, tusk.outcome, tusk.finished,
  tusk.lease, tusk.lane_tally, tusk.lane_position,
  tusk.lane, tusk.segment, tusk.segment_part, tusk.class, tusk.log, tusk.need, tusk.open_need, tusk.doubt, tusk.turn,
  tusk.grace;
drop sequence tusk.record_version, tusk.task_n, tusk.doubt_n, tusk.beside;
