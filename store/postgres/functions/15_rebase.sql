-- The tasks that can be claimed or were running.
create view tusk_fn.unfinished as
select distinct on (t.id) t.*
from tusk_fn.task t
where tusk_fn.unclaimed(t.lane, t.xid, t.n)
  or exists (select from tusk_fn.running r where r.id = t.id and r.lane = t.lane and t.xid between r.lo and r.hi)
order by t.id, t.xid desc, t.n desc;
