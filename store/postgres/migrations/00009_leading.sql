-- up
set local lock_timeout = '5s';

-- An index in which the id follows another column does not help to find a task by its id. After a burst whose rows are
-- dead, the statistics say that a table has pages but no rows. Then all plans cost the same, and the planner chose such
-- an index and read all of it. It does not consider a partial index unless the query names the first column.
-- The new indexes are built before the old ones are dropped, so that reads go on meanwhile.
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
