-- name: lock_tasks
select tusk_fn.lock_tasks($1, $2, $3)

-- name: known_of
select * from tusk_fn.known_of($1)

-- name: known_keys
-- Here and below, a lateral subquery with an offset is read once for each row on its left, by an
-- index: a join might read all of the table.
select k.place::int, y.holder, y.awaiting, y.ended, y.source_at, y.tasks
from unnest($1::bigint[], $2::text[]) with ordinality k(queue, key, place)
cross join lateral (select x.* from tusk.key x where x.queue = k.queue and x.key = k.key offset 0) y

-- name: known_needs
select n.child, n.parent, n.policy, o.parent is not null as open
from pg_catalog.unnest($1::uuid[]) u(id)
cross join lateral (select x.* from tusk.need x where x.child = u.id offset 0) n
left join lateral (select x.* from tusk.open_need x where x.parent = n.parent and x.child = n.child offset 0) o on true
order by n.child, n.place

-- name: children_to_tell
select child, parent, policy from tusk_fn.children_to_tell($1)

-- name: put_tasks
select tusk_fn.put_tasks($1, $2)

-- name: note_changes
select tusk_fn.note_changes($1, $2, $3)

-- name: give_back_turns
select tusk_fn.give_back($1)

-- name: add_stops
insert into tusk.stop (id, token, reason)
select x.id, x.token, x.reason from unnest($1::uuid[], $2::uuid[], $3::text[]) x(id, token, reason) order by x.id
on conflict (id) do update set token = excluded.token, reason = excluded.reason

-- name: write_keys
select tusk_fn.write_keys($1, $2, $3, $4, $5, $6, $7, $8)

-- name: write_needs
select tusk_fn.write_needs($1, $2, $3, $4, $5)

-- name: meet_needs
delete from tusk.open_need o
where o.ctid = any(array(
  select x.ctid from unnest($1::uuid[], $2::uuid[]) m(child, parent)
  cross join lateral (select y.ctid from tusk.open_need y where y.child = m.child and y.parent = m.parent offset 0) x))

-- name: close_needs
select tusk_fn.close_needs($1)

-- name: forget_tasks
select tusk_fn.forget_tasks($1)

-- name: doubt_children
select tusk_fn.doubt_children($1, $2)
