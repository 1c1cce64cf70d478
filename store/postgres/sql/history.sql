-- name: follow
select pg_snapshot_xmin(pg_current_snapshot())::text

-- name: ended
select e.next, e.id, e.queue, e.state, e.at, e.rescued from tusk_fn.ended($1::text::xid8, $2) e
