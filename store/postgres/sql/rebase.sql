-- name: at_home
select exists (select from tusk.server s, pg_control_system() c where s.system_identifier = c.system_identifier)

-- name: rebase
select tusk.rebase()
