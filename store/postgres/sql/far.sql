-- name: hear
select h from tusk_fn.hear($1, $2) h

-- name: needed
-- A row of nothing says that tasks of lane $3 wait for their time.
select n.id, n.state, n.announced from tusk_fn.needed($1, $2) n
union all
select null, null, null where exists (select from tusk.waiting w where w.lane = $3 and w.state = 1 and w.line is null)

-- name: deliver
select d::text from tusk_fn.deliver($1) d

-- name: in_flight
select pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint from pg_current_snapshot() s

-- name: prepared
select p.gid from pg_prepared_xacts p where p.database = current_database()
