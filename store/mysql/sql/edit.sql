-- name: stop.add
insert into tusk_stop (place, n, lap, reason) values :rows
on duplicate key update lap = values(lap), reason = values(reason)

-- name: note.changed
insert into tusk_note (place, n, seq, body) values :rows
on duplicate key update body = values(body)

-- name: stop.over
select s.place, s.n, s.lap
from tusk_stop s left join tusk_task t force index (primary) on t.place = s.place and t.n = s.n
where t.lap > s.lap or t.lap = s.lap and t.state >= 6 or t.place is null and s.place < ?
limit 500

-- name: stop.forget
delete from tusk_stop where place = ? and n = ? and lap = ?

-- name: task.delete
-- Joined here and below, because MySQL waits for a lock on the row that follows a range.
delete t from (:tasks) x straight_join tusk_task t force index (primary) on t.place = x.place and t.n = x.n

-- name: attempt.delete
delete t from (:tasks) x straight_join tusk_attempt t force index (primary) on t.place = x.place and t.n = x.n

-- name: note.delete
delete t from (:tasks) x straight_join tusk_note t force index (primary) on t.place = x.place and t.n = x.n

-- name: stops.delete
delete t from (:tasks) x straight_join tusk_stop t force index (primary) on t.place = x.place and t.n = x.n

-- name: labels.delete
delete t from (:tasks) x straight_join tusk_label t force index (tusk_label_task) on t.place = x.place and t.n = x.n
