-- name: stop.add
insert into tusk_stop (task, token, worker, reason) values (?, ?, ?, ?)
on conflict (task) do update set token = excluded.token, worker = excluded.worker, reason = excluded.reason;

-- name: edit.cancel
update tusk_task
set state = 7, lane = null, pos = null, reason = ?, finished_at = ?
where num = ?;

-- name: edit.revive
update tusk_task
set attempt = 0, crashes = 0, reason = null, finished_at = null, worker = null, turn = null
where num = ?;

-- name: edit.relocate
update tusk_task set kind = ?, priority = ? where num = ?;
