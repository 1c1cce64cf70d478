-- name: witness.declare
update tusk_worker set dead = 1, watched = 0 where id = ? and dead = 0 and beat_at = ?

-- name: witness.watched
select id, beat_at, is_used_lock(concat(?, hex(id))), :now from tusk_worker where dead = 0 and watched = 1
