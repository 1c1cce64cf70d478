-- name: end.trigger
create trigger if not exists tusk_task_ended after update of finished_at on tusk_task
  when new.finished_at is not null begin
  insert into tusk_end (task, kind, state, at, rescued) values (new.id, new.kind, new.state, new.finished_at, 0);
  delete from tusk_end where seq <= (select max(seq) from tusk_end) - 1000000;
end;

-- name: end.trigger_died
create trigger if not exists tusk_attempt_died after insert on tusk_attempt
when new.error like 'worker ____________________________________ died' begin
  insert into tusk_end (task, kind, state, at, rescued)
  select t.id, t.kind, new.outcome, new.ended_at, 1 from tusk_task t where t.num = new.task and t.finished_at is null;
end;

-- name: end.untrigger
drop trigger if exists tusk_task_ended;

-- name: end.untrigger_died
drop trigger if exists tusk_attempt_died;

-- name: end.last
select coalesce((select seq from sqlite_sequence where name = 'tusk_end'), 0);

-- name: end.first
select coalesce((select min(seq) from tusk_end), 0);

-- name: end.list
select e.seq, e.task, k.queue, e.state, e.at, e.rescued
from tusk_end e left join tusk_kind k on k.id = e.kind
where e.seq > ? order by e.seq limit ?;

-- name: end.forget
delete from tusk_end where seq in (select seq from tusk_end where seq <= ? order by seq limit 0 + ?);
