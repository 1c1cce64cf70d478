-- up
set local lock_timeout = '5s';

-- Indexes for searches by a single attribute. A task without a key, a tenant or a failure costs
-- nothing here. An index of kinds and tags would cost something for every task: the catalogue
-- serves these searches instead.
create index task_key on tusk.log (key, id) where key is not null;
create index task_tenant on tusk.log (tenant, id) where tenant is not null;
create index task_failure on tusk.log (failure, id) where failure is not null;
create index waiting_key on tusk.waiting (key, id) where key is not null;
create index waiting_tenant on tusk.waiting (tenant, id) where tenant is not null;
create index waiting_failure on tusk.waiting (failure, id) where failure is not null;
create index dead_key on tusk.dead (key, id) where key is not null;
create index dead_tenant on tusk.dead (tenant, id) where tenant is not null;
create index dead_failure on tusk.dead (failure, id) where failure is not null;

-- Tables whose rows come and go one by one do have indexes of kinds and tags.
create index waiting_kind on tusk.waiting (kind, id);
create index waiting_tags on tusk.waiting using gin (tags) with (gin_pending_list_limit = 256) where tags is not null;
create index dead_kind on tusk.dead (kind, id);
create index dead_lane on tusk.dead (lane, state, id);
create index dead_tags on tusk.dead using gin (tags) with (gin_pending_list_limit = 256) where tags is not null;
create index waiting_enqueued on tusk.waiting (enqueued_at);
create index dead_enqueued on tusk.dead (enqueued_at);

-- The tasks of a group of errors are counted by an index-only scan.
create index waiting_error on tusk.waiting (failure, kind, lane) where state = 5;
create index dead_error on tusk.dead (failure, kind, lane) where state = 8;

-- down
set local lock_timeout = '5s';
drop index tusk.task_key, tusk.task_tenant, tusk.task_failure, tusk.waiting_key, tusk.waiting_tenant,
  tusk.waiting_failure, tusk.dead_key, tusk.dead_tenant, tusk.dead_failure, tusk.waiting_kind,
  tusk.waiting_tags, tusk.dead_kind, tusk.dead_lane, tusk.dead_tags, tusk.waiting_enqueued,
  tusk.dead_enqueued, tusk.waiting_error, tusk.dead_error;
