-- name: at_home
select tusk.at_home()

-- name: rebase
select tusk.rebase()

-- name: unfinished
select count(*) from tusk.unfinished()

-- name: oldest_program
select oldest_program from tusk.server
