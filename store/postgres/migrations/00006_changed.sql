-- up
set local lock_timeout = '5s';

-- When and how a task was last changed while it waited.
alter table tusk.note add column changed_at timestamptz, add column changed text collate "C";

-- down
set local lock_timeout = '5s';
alter table tusk.note drop column changed_at, drop column changed;
