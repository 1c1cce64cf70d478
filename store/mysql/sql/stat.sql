-- name: delta.all
select at, body from tusk_delta force index (primary) order by seq

-- name: fold.lock
select 1 from tusk_leader where one = 3 for update

-- name: delta.take
select seq, at, body
from tusk_delta force index (primary)
order by seq
limit ?
for update skip locked

-- name: delta.delete
-- Joined, because a condition on all rows might lock the rows between them.
delete d from (:seqs) x straight_join tusk_delta d force index (primary) on d.seq = x.seq

-- name: stat.range
select at, queue, kind, completed, failed, discarded, cancelled, waited, ran
from tusk_stat force index (primary)
where at >= ? and at < ?

-- name: stat.read
select at, queue, kind, completed, failed, discarded, cancelled, waited, ran
from tusk_stat force index (primary)
where at = ? and queue = ? and kind = ?

-- name: stat.write
insert into tusk_stat (at, queue, kind, completed, failed, discarded, cancelled, waited, ran)
values (?, ?, ?, ?, ?, ?, ?, ?, ?)
on duplicate key update completed = values(completed), failed = values(failed), discarded = values(discarded),
    cancelled = values(cancelled), waited = values(waited), ran = values(ran)

-- name: stat.prune
delete from tusk_stat where at <= :now - ? limit 10000

-- name: error.prune
delete from tusk_error where last <= :now - ? and waiting <= 0 and dead <= 0 limit 10000

-- name: count.all
select queue, state, tasks from tusk_count

-- name: count.running
select tasks from tusk_count where state = 4

-- name: count.add
insert into tusk_count (queue, state, tasks) values (?, ?, ?)
on duplicate key update tasks = tasks + values(tasks)

-- name: error.latest
select id, queue, kind, fingerprint, count, waiting, dead, first, last, sample, sample_task
from tusk_error force index (tusk_error_last)
where last >= ? and (? = '' or queue = ?) and (? = '' or kind = ?)
order by last desc
limit ?

-- name: error.read
select id, queue, kind, fingerprint, count, waiting, dead, first, last, sample, sample_task
from tusk_error force index (primary)
where id in (:rows)

-- name: error.write
insert into tusk_error (id, queue, kind, fingerprint, count, waiting, dead, first, last, sample, sample_task)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
on duplicate key update count = values(count), waiting = values(waiting), dead = values(dead), first = values(first),
    last = values(last), sample = values(sample), sample_task = values(sample_task)
