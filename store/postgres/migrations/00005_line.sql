-- up
set local lock_timeout = '5s';

-- Defaults for the columns that a COPY of tasks leaves out when they join a line now. All other
-- statements name them.
alter table tusk.waiting
  alter run_at set default statement_timestamp(),
  alter enqueued_at set default statement_timestamp(),
  alter attempt set default 0,
  alter crashes set default 0,
  alter line set default statement_timestamp();

-- down
set local lock_timeout = '5s';
alter table tusk.waiting
  alter run_at drop default, alter enqueued_at drop default, alter attempt drop default, alter crashes drop default,
  alter line drop default;
