-- up
set local lock_timeout = '5s';

-- What people look for by itself. Tasks without a key, a tenant or a failure pay
-- nothing for these; of kinds and tags, which every task would pay for, the catalogue
-- knows.
create index task_key on tusk.log (key, id) where key is not null;
create index task_tenant on tusk.log (tenant, id) where tenant is not null;
create index task_failure on tusk.log (failure, id) where failure is not null;
create index waiting_key on tusk.waiting (key, id) where key is not null;
create index waiting_tenant on tusk.waiting (tenant, id) where tenant is not null;
create index waiting_failure on tusk.waiting (failure, id) where failure is not null;
create index dead_key on tusk.dead (key, id) where key is not null;
create index dead_tenant on tusk.dead (tenant, id) where tenant is not null;
create index dead_failure on tusk.dead (failure, id) where failure is not null;

-- down
set local lock_timeout = '5s';
drop index tusk.task_key, tusk.task_tenant, tusk.task_failure, tusk.waiting_key, tusk.waiting_tenant, tusk.waiting_failure,
  tusk.dead_key, tusk.dead_tenant, tusk.dead_failure;
