-- name: finish.complete
update tusk_task indexed by tusk_task_id
set state = 6, attempt = ?, crashes = ?, claimed_at = ?, finished_at = ?, worker = ?
where id = ? and state = 3 and lane = ? and pos between ? and ? and needed is null
  and not exists (select 1 from tusk_stop s where s.task = tusk_task.id);

-- name: finish.keyed
-- Like finish.complete, for a task that holds its key and for which no rerun waits.
update tusk_task indexed by tusk_task_id
set state = 6, attempt = ?, crashes = ?, claimed_at = ?, finished_at = ?, worker = ?
where id = ? and state = 3 and lane = ? and pos between ? and ? and needed is null
  and not exists (select 1 from tusk_stop s where s.task = tusk_task.id)
  and exists (
    select 1 from tusk_key k
    where k.queue = ? and k.tenant = ? and k.key = ? and k.task = tusk_task.id and k.awaiting is null);

-- name: key.free
update tusk_key set ended = task, task = null where queue = ? and tenant = ? and key = ?;

-- name: finish.forget
delete from tusk_task indexed by tusk_task_id
where id = ? and state = 3 and lane = ? and pos between ? and ? and needed is null
  and not exists (select 1 from tusk_stop s where s.task = tusk_task.id);

-- name: attempt.trim
delete from tusk_attempt where task = ? and error is null;

-- name: attempt.add
insert into tusk_attempt (task, n, number, worker, started_at, ended_at, outcome, error, trace, fingerprint)
values (?1, 1 + coalesce((select max(n) from tusk_attempt where task = ?1), 0), ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9);

-- name: stop.drop
delete from tusk_stop where task = ?;
