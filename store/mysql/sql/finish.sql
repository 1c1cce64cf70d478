-- name: finished.insert
insert into tusk_finished (queue, state, finished_at, seq, refs) values (?, ?, ?, ?, ?)

-- name: attempt.insert
insert into tusk_attempt (place, n, lap, number, worker, started_at, ended_at, outcome, error, trace, fingerprint)
values :rows

-- name: stop.locked
select place, n, lap, reason
from tusk_stop force index (primary)
where :tasks
lock in share mode
