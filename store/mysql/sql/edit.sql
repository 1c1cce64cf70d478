-- name: stop.add
insert into tusk_stop (place, n, lap, reason) values :rows
on duplicate key update lap = values(lap), reason = values(reason)

-- name: stop.over
select s.place, s.n, s.lap
from tusk_stop s left join tusk_task t force index (primary) on t.place = s.place and t.n = s.n and t.lap = s.lap and t.state = 3
where t.place is null
limit 500

-- name: stop.forget
delete from tusk_stop where place = ? and n = ? and lap = ?

-- name: task.delete
delete t from tusk_task t force index (primary) where :tasks

-- name: attempt.delete
delete t from tusk_attempt t force index (primary) where :tasks

-- name: note.delete
delete t from tusk_note t force index (primary) where :tasks

-- name: stops.delete
delete t from tusk_stop t force index (primary) where :tasks

-- name: labels.delete
delete t from tusk_label t force index (tusk_label_task) where :tasks

-- name: turns.delete
delete t from tusk_turn t force index (primary) where :tasks
