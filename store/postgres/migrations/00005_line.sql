-- up
set local lock_timeout = '5s';

-- What a COPY of tasks that stand in line from now on leaves out, and nobody else does.
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
