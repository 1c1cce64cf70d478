-- up
set local lock_timeout = '5s';

-- Tasks of other ledgers that tasks of this ledger need. States have the numbers of package store,
-- except that 0 means that the task does not exist, and 9 that it has not ended.
create table tusk.far (
  id       uuid        not null primary key,
  state    smallint    not null,
  heard_at timestamptz not null default clock_timestamp()
);
create index far_heard on tusk.far (heard_at);

-- Tasks that another ledger has sent here, so that none is stored twice.
create table tusk.delivered (
  id uuid        not null primary key,
  at timestamptz not null default clock_timestamp()
);
create index delivered_at on tusk.delivered (at);

-- down
set local lock_timeout = '5s';
drop table tusk.far, tusk.delivered;
