-- up
set local lock_timeout = '5s';

-- As in 00008, but rows of transactions that were in progress are looked up one xid at a time. A join might read all
-- rows, also those that are gone.
create or replace view tusk.held_row as
select h.*
from (select s.seq, s.xid, s.seen from tusk.held s where s.seen is not null order by s.seq desc limit 1) s
cross join lateral (
  select h.* from tusk.held h where h.xid = s.xid and h.seq = s.seq
  union all
  select h.* from tusk.held h where h.xid >= pg_snapshot_xmax(s.seen) and h.seen is null
  union all
  select h.* from pg_snapshot_xip(s.seen) x(xid)
  cross join lateral (select y.* from tusk.held y where y.xid = x.xid and y.seen is null offset 0) h) h;

-- down
set local lock_timeout = '5s';
create or replace view tusk.held_row as
select h.*
from (select s.seq, s.xid, s.seen from tusk.held s where s.seen is not null order by s.seq desc limit 1) s
cross join lateral (
  select h.* from tusk.held h where h.xid = s.xid and h.seq = s.seq
  union all
  select h.* from tusk.held h where h.xid >= pg_snapshot_xmax(s.seen) and h.seen is null
  union all
  select h.* from pg_snapshot_xip(s.seen) x join tusk.held h on h.xid = x and h.seen is null) h;
