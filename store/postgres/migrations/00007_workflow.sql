-- up
set local lock_timeout = '5s';

-- To list the tasks of a workflow page by page.
drop index tusk.task_workflow, tusk.waiting_workflow, tusk.dead_workflow;
create index task_workflow on tusk.log (workflow, id) where workflow is not null;
create index waiting_workflow on tusk.waiting (workflow, id) where workflow is not null;
create index dead_workflow on tusk.dead (workflow, id) where workflow is not null;

-- down
set local lock_timeout = '5s';
drop index tusk.task_workflow, tusk.waiting_workflow, tusk.dead_workflow;
create index task_workflow on tusk.log (workflow) where workflow is not null;
create index waiting_workflow on tusk.waiting (workflow) where workflow is not null;
create index dead_workflow on tusk.dead (workflow) where workflow is not null;
