-- name: witness.declare
update tusk_worker force index (primary) set dead = 1, watched = 0 where id = ? and dead = 0 and beat_at = ?

-- name: witness.disown
update tusk_worker force index (primary) set watched = 0 where id = ?

-- name: witness.watched
select id, beat_at, late_at, watched, is_used_lock(concat(?, hex(id))), :now
from tusk_worker force index (tusk_worker_dead)
where :late

-- name: witness.late
-- A lock is checked only if the beat is overdue or will be within a second.
dead = 0 and watched <> 0 and late_at <= :now + 1000000
