-- name: stat.find
select completed, failed, discarded, cancelled, waited, ran from tusk_stat where at = ? and kind = ?;

-- name: stat.write
insert into tusk_stat (at, kind, completed, failed, discarded, cancelled, waited, ran) values (?, ?, ?, ?, ?, ?, ?, ?)
on conflict (at, kind) do update
set completed = excluded.completed, failed = excluded.failed, discarded = excluded.discarded,
    cancelled = excluded.cancelled, waited = excluded.waited, ran = excluded.ran;

-- name: stat.range
select completed, failed, discarded, cancelled, waited, ran, at, kind
from tusk_stat
where at >= ? and at < ?;

-- name: error.count
insert into tusk_error (fingerprint, kind, count, waiting, dead, first, last, sample, sample_task)
values (?1, ?2, 1, 0, 0, ?3, ?3, ?4, ?5)
on conflict (fingerprint, kind) do update
set count = count + 1, first = min(first, excluded.first),
    sample = iif(excluded.last >= last, excluded.sample, sample),
    sample_task = iif(excluded.last >= last, excluded.sample_task, sample_task),
    last = max(last, excluded.last)
returning id;

-- name: error.find
select id from tusk_error where fingerprint = ? and kind = ?;

-- name: error.regroup
update tusk_error set waiting = waiting + ?, dead = dead + ? where id = ?;

-- name: error.list
select e.fingerprint, k.queue, k.kind, e.count, e.waiting, e.dead, e.first, e.last, e.sample, e.sample_task
from tusk_error e indexed by tusk_error_last
cross join tusk_kind k on k.id = e.kind
where e.last >= ?1 and (?2 = '' or k.queue = ?2) and (?3 = '' or k.kind = ?3)
order by e.last desc, e.fingerprint, k.queue
limit 0 + ?4;
