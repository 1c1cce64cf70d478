-- name: worker.beat
insert into tusk_worker (id, host, pid, queues, concurrency, version, kinds, started_at, beat_at, expires_at, seq,
  holds, hung)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8, ?9, ?10, ?11, ?13)
on conflict (id) do update
set host = excluded.host, pid = excluded.pid, queues = excluded.queues, concurrency = excluded.concurrency,
    version = excluded.version, kinds = excluded.kinds, beat_at = excluded.beat_at, expires_at = excluded.expires_at,
    seq = excluded.seq, holds = excluded.holds, hung = excluded.hung,
    since = case when ?10 = 0 then 0 when ?12 > 0 and ?12 = seq then beat_at else since end;

-- name: worker.bury
update tusk_worker set dead = ? where id = ?;

-- name: stop.find
select task, token from tusk_stop indexed by tusk_stop_worker where worker = ?;

-- name: lease.holds
select num from tusk_task indexed by tusk_task_id
where id = ? and state = 3 and lane = ? and pos between ? and ?;

-- name: note.progress
insert into tusk_note (task, percent, message) values (?, ?, ?)
on conflict (task) do update set percent = excluded.percent, message = excluded.message;

-- name: note.output
insert into tusk_note (task, output) values (?, ?)
on conflict (task) do update set output = excluded.output;

-- name: note.changed
insert into tusk_note (task, changed_at, changed)
select num, ?, ? from tusk_task indexed by tusk_task_id where id = ?
on conflict (task) do update set changed_at = excluded.changed_at, changed = excluded.changed;

-- name: log.add
insert into tusk_log (task, n, at, attempt, level, text)
values (?1, 1 + coalesce((select max(n) from tusk_log where task = ?1), 0), ?2, ?3, ?4, ?5);
