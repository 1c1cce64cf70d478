-- up
set local lock_timeout = '5s';

-- What tasks of this ledger need, and other ledgers have. States are numbered as in package
-- store, but for 0, there is none, and 9, it has not ended.
create table tusk.far (
  id       uuid        not null primary key,
  state    smallint    not null,
  heard_at timestamptz not null default clock_timestamp()
);
create index far_heard on tusk.far (heard_at);

-- Tasks that another ledger has sent here, so that none is taken in twice.
create table tusk.delivered (
  id uuid        not null primary key,
  at timestamptz not null default clock_timestamp()
);
create index delivered_at on tusk.delivered (at);

-- down
set local lock_timeout = '5s';
drop table tusk.far, tusk.delivered;
