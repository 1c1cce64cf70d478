-- name: leader.lock
select id, term, expires_at, version from tusk_leader where one = 1 for update

-- name: leader.check
select id, term, expires_at, version from tusk_leader where one = 1 lock in share mode

-- name: leader.write
update tusk_leader set id = ?, term = ?, expires_at = ?, version = ? where one = 1

-- name: leader.renew
update tusk_leader set expires_at = :now + ?, version = :now where one = 1 and id = ? and term = ? and expires_at > :now

-- name: admit.due
select run_at, place, n
from tusk_waiting force index (primary)
where run_at >= ? and run_at <= ? and (run_at > ? or place > ? or place = ? and n > ?)
order by run_at, place, n
limit ?

-- name: admit.lock
select :columns without args
from tusk_task force index (primary)
where state in (1, 5) and run_at <= :due and :tasks
order by place, n
for update skip locked

-- name: admit.next
select run_at from tusk_waiting force index (primary) order by run_at limit 1

-- name: waiting.drop
-- Joined, because a condition on all rows might lock the rows between them.
delete w from (:waiting) x straight_join tusk_waiting w force index (primary) on w.run_at = x.run_at
  and w.place = x.place and w.n = x.n

-- name: label.drop
delete l from tusk_label l force index (primary) where label >= ? and label <= ? and id in (:rows)

-- name: rescue.overdue
select id from tusk_worker force index (tusk_worker_dead) where dead = 0 and expires_at <= ?

-- name: rescue.declare
update tusk_worker force index (primary) set dead = 1, watched = 0 where id = ? and dead = 0 and expires_at <= ?

-- name: rescue.ahead
select id from tusk_worker force index (tusk_worker_dead) where dead = 0 and beat_at > ?

-- name: rescue.rewind
update tusk_worker force index (primary) set since = 0, expires_at = expires_at - beat_at + ?,
  late_at = late_at - beat_at + ?, beat_at = ?
where id = ? and dead = 0 and beat_at > ?

-- name: rescue.leases
select l.token, l.worker, l.claimed_at, l.spans
from tusk_worker w force index (tusk_worker_dead)
straight_join tusk_lease l force index (tusk_lease_worker) on l.worker = w.id
where w.dead in (1, 2)
order by l.claimed_at, l.token

-- name: rescue.strays
select l.token, l.worker, l.claimed_at, l.spans
from tusk_worker w force index (tusk_worker_dead)
straight_join tusk_lease l force index (tusk_lease_worker) on l.worker = w.id
where w.dead = 0 and l.claimed_at < w.since and w.since <= ?
order by l.claimed_at, l.token

-- name: rescue.holds
select holds from tusk_worker where id = ?

-- name: lease.stages
select place, n, lap, state from tusk_task force index (primary) where :tasks

-- name: prune.class
select queue, state
from tusk_finished force index (primary)
where queue = ? and state > ?
order by queue, state
limit 1

-- name: prune.next queue
select queue, state
from tusk_finished force index (primary)
where queue > ?
order by queue, state
limit 1

-- name: prune.lists
select finished_at, seq, refs
from tusk_finished force index (primary)
where queue = ? and state = ? and finished_at <= ?
order by finished_at, seq
limit ?

-- name: due.lists
select finished_at, seq, refs
from tusk_finished force index (primary)
where queue = ? and state = ? and finished_at <= ? and finished_at >= ? and (finished_at > ? or seq > ?)
order by finished_at, seq
limit ?

-- name: prune.shorten
update tusk_finished set refs = ? where queue = ? and state = ? and finished_at = ? and seq = ?

-- name: prune.list
delete from tusk_finished where queue = ? and state = ? and finished_at = ? and seq = ?

-- name: prune.workers
delete w from tusk_worker w force index (tusk_worker_dead)
where w.dead in (1, 2) and w.beat_at < :now - ? and not exists (select 1
  from tusk_lease l force index (tusk_lease_worker) where l.worker = w.id)

-- name: sweep.leases
select token, worker, claimed_at, spans
from tusk_lease force index (primary)
where token > ? and claimed_at <= :now - ?
order by token
limit ?

-- name: chores
select l.id, l.term, l.expires_at, :now, :asked
from tusk_leader l
where l.one = 1

-- name: chores.waiting
(select run_at from tusk_waiting force index (primary) order by run_at limit 1),
exists (select 1 from tusk_doomed), exists (select 1 from tusk_line) or exists (select 1 from tusk_held)

-- name: chores.rescue
exists (select 1 from tusk_worker force index (tusk_worker_dead) where dead = 0 and expires_at <= :now)
or exists (select 1 from tusk_worker force index (tusk_worker_dead) where dead = 0 and beat_at > :now + ?)
or exists (
    select 1
    from tusk_worker w force index (tusk_worker_dead)
    straight_join tusk_lease h force index (tusk_lease_worker) on h.worker = w.id
    where w.dead in (1, 2))

-- name: chores.free
exists (select 1 from tusk_worker force index (tusk_worker_dead)
    where :late and is_used_lock(concat(?, hex(id))) is null)

-- name: chores.leases
-- Read only if it is time to compare leases.
if(? - :now between 1 and ?, 0, exists (select 1 from tusk_lease))

-- name: chores.moved
exists (select 1 from tusk_delta)

-- name: chores.records
exists (select 1 from tusk_record force index (primary) where kind = ?)
