-- name: at_home
select tusk_fn.at_home() and tusk_fn.seen()

-- name: rebase
select tusk_fn.rebase()

-- name: unfinished
select count(*) from tusk_fn.unfinished()

-- name: oldest_program
select oldest_program from tusk.server
