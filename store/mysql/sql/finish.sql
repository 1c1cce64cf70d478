-- name: finish.complete
update tusk_task force index (primary)
set state = 6, attempt = attempt + 1, crashes = 0, reason = null, claimed_at = ?, worker = ?, finished_at = greatest(?, :now - :ago)
where state = 3 and needed = 0 and turn = 0 and :tasks

-- name: finish.lock
select 1 from tusk_task force index (primary) where :tasks order by place, n for update

-- name: finished.insert
insert into tusk_finished (queue, state, finished_at, seq, refs) values (?, ?, ?, ?, ?)

-- name: attempt.insert
insert into tusk_attempt (place, n, lap, number, worker, started_at, ended_at, outcome, error, trace, fingerprint)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: stop.delete
delete from tusk_stop where place = ? and n = ?

-- name: stop.locked
select place, n, lap, reason
from tusk_stop force index (primary)
where :tasks
lock in share mode
