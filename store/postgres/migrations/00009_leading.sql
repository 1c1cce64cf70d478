-- up
set local lock_timeout = '5s';

-- An index that has the id behind another column is no way to a task by its id. Where the statistics say that a table
-- has pages and no row, as they do after a burst whose rows are dead, all ways cost the same, and the planner took such
-- an index and read all of it. A partial one is not considered unless the query names the first column.
drop index tusk.waiting_kind, tusk.waiting_lane, tusk.dead_kind, tusk.dead_lane;
create index waiting_kind on tusk.waiting (kind, id) where kind is not null;
create index waiting_lane on tusk.waiting (lane, state, id) where lane is not null;
create index dead_kind on tusk.dead (kind, id) where kind is not null;
create index dead_lane on tusk.dead (lane, state, id) where lane is not null;

-- down
set local lock_timeout = '5s';
drop index tusk.waiting_kind, tusk.waiting_lane, tusk.dead_kind, tusk.dead_lane;
create index waiting_kind on tusk.waiting (kind, id);
create index waiting_lane on tusk.waiting (lane, state, id);
create index dead_kind on tusk.dead (kind, id);
create index dead_lane on tusk.dead (lane, state, id);
