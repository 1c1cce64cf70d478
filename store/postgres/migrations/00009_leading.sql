-- up
set local lock_timeout = '5s';

-- An index that has the id behind another column is no way to a task by its id. Where the statistics say that a table
-- has pages and no row, as they do after a burst whose rows are dead, all ways cost the same, and the planner took such
-- an index and read all of it. A partial one is not considered unless the query names the first column.
-- They are made before the old ones go: reads go on meanwhile.
alter index tusk.waiting_kind rename to waiting_kind_old;
alter index tusk.waiting_lane rename to waiting_lane_old;
alter index tusk.dead_kind rename to dead_kind_old;
alter index tusk.dead_lane rename to dead_lane_old;
create index waiting_kind on tusk.waiting (kind, id) where kind is not null;
create index waiting_lane on tusk.waiting (lane, state, id) where lane is not null;
create index dead_kind on tusk.dead (kind, id) where kind is not null;
create index dead_lane on tusk.dead (lane, state, id) where lane is not null;
drop index tusk.waiting_kind_old, tusk.waiting_lane_old, tusk.dead_kind_old, tusk.dead_lane_old;

-- down
set local lock_timeout = '5s';
alter index tusk.waiting_kind rename to waiting_kind_old;
alter index tusk.waiting_lane rename to waiting_lane_old;
alter index tusk.dead_kind rename to dead_kind_old;
alter index tusk.dead_lane rename to dead_lane_old;
create index waiting_kind on tusk.waiting (kind, id);
create index waiting_lane on tusk.waiting (lane, state, id);
create index dead_kind on tusk.dead (kind, id);
create index dead_lane on tusk.dead (lane, state, id);
drop index tusk.waiting_kind_old, tusk.waiting_lane_old, tusk.dead_kind_old, tusk.dead_lane_old;
