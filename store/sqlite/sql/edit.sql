-- name: stop.add
insert into tusk_stop (task, token, worker, reason) values (?, ?, ?, ?)
on conflict (task) do update set token = excluded.token, worker = excluded.worker, reason = excluded.reason;

-- name: task.relocate
update tusk_task set kind = ?, priority = ? where num = ?;

-- name: task.mark
update tusk_task set open = ?, needed = ? where num = ?;

-- name: task.put
update tusk_task
set state = ?, lane = ?, pos = ?, attempt = ?, crashes = ?, reason = ?, failure = ?, run_at = ?, claimed_at = ?,
    finished_at = ?, worker = ?, open = ?, needed = ?, turn = ?, place = ?
where num = ?;

-- name: task.end
update tusk_task
set state = ?, attempt = ?, crashes = ?, reason = ?, failure = ?, claimed_at = ?, finished_at = ?, worker = ?,
    needed = ?
where num = ?;
