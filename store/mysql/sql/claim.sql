-- name: worker.read
select dead from tusk_worker where id = ?

-- name: worker.lock
select dead, started_at, seq from tusk_worker where id = ? for update

-- name: worker.insert
insert into tusk_worker (id, host, pid, queues, concurrency, version, kinds, started_at, beat_at, late_at, expires_at,
  dead, watched, seq, holds, hung, program)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?)

-- name: worker.beat
update tusk_worker
set since = if(? = 0, 0, if(? > 0 and ? = seq, beat_at, since)),
    host = ?, pid = ?, queues = ?, concurrency = ?, version = ?, kinds = ?, beat_at = ?, late_at = ?, expires_at = ?,
    watched = ?, seq = ?, holds = ?, hung = ?, program = ?
where id = ?

-- name: worker.leave
update tusk_worker set dead = 2, watched = 0 where id = ?

-- name: worker.living
select id, host, pid, queues, concurrency, version, kinds, started_at, beat_at, expires_at, hung
from tusk_worker
where dead = 0
order by started_at, id

-- name: probe.worker
(select -1, dead from tusk_worker where id = ?)

-- name: probe.queue
(select ?, 1 from tusk_ready force index (primary) where queue = ? limit 1)

-- name: lease.read
select token, worker, claimed_at, spans from tusk_lease force index (primary) where token in (:rows)

-- name: lease.of worker
select token, worker, claimed_at, spans from tusk_lease force index (tusk_lease_worker) where worker = ?

-- name: lease.all
select token, worker, claimed_at, spans from tusk_lease

-- name: lease.delete
delete l from tusk_lease l force index (primary) where :leases

-- name: stop.all
select s.place, s.n, s.lap, t.id
from tusk_stop s straight_join tusk_task t force index (primary) on t.place = s.place and t.n = s.n and t.lap = s.lap
where t.state = 3

-- name: note.add
insert into tusk_note (place, n, seq, body)
select place, n, ?, ?
from tusk_task force index (primary)
where place = ? and n = ? and lap = ? and state = 3

-- name: note.insert
insert into tusk_note (place, n, seq, body) values (?, ?, ?, ?)
