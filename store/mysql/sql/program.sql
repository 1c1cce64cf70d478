-- name: program.seen
-- Records that a program runs.
update tusk_program set seen_at = :now where name = ? and seen_at < :now - ?

-- name: program.add
insert into tusk_program (name, version, installed_at, seen_at) values (?, ?, :now, :now)
on duplicate key update version = least(version, values(version)), seen_at = :now

-- name: program.installed
select installed_at from tusk_program where name = ?

-- name: program.all
-- Whether each program is in use: it works with a version of the tables, and either has a given name, was seen
-- recently, or has a living worker.
select p.name, p.version <= ? and (p.name = ? or p.seen_at >= :now - ?
    or exists (select 1 from tusk_worker w where w.dead = 0 and w.program = p.name)) as used
from tusk_program p

-- name: program.drop
delete from tusk_program where name = ?

-- name: program.oldest
select term from tusk_leader where one = 5

-- name: procedure.all
select routine_name
from information_schema.routines
where routine_schema = database() and routine_type = 'PROCEDURE' and routine_name like 'tusk|_%' escape '|'
