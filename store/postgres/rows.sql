-- What statements give to functions, as functions/00_rows.sql declares it. Parameters are arrays, one for each column,
-- but for the one end that a user's transaction brings.

-- name: flush
row(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)::tusk_fn.flush

-- name: odd_end
row(null, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)::tusk_fn.odd_end

-- name: odd_ends
array(select row(x.*)::tusk_fn.odd_end from unnest(?::int[], ?::uuid[], ?::smallint[], ?::bigint[], ?::int[], ?::int[],
    ?::text[], ?::text[], ?::text[], ?::text[], ?::bigint[]) x)

-- name: end_keys
array(select row(x.*)::tusk_fn.end_key from unnest(?::bigint[], ?::text[], ?::uuid[]) x)

-- name: new_tasks
array(select row(x.*)::tusk_fn.new_task from unnest(?::bigint[], ?::uuid[], ?::text[], ?::bytea[], ?::text[], ?::text[],
    ?::bytea[], ?::timestamptz[], ?::bigint[], ?::timestamptz[], ?::bigint[], ?::text[], ?::smallint[],
    ?::timestamptz[], ?::uuid[], ?::boolean[], ?::text[]) x)

-- name: new_needs
array(select row(x.*)::tusk_fn.new_need from unnest(?::int[], ?::uuid[], ?::smallint[]) x)

-- name: extras
row(?, array(select row(x.*)::tusk_fn.new_need from unnest(?::int[], ?::uuid[], ?::smallint[]) x), ?, ?,
    array(select row(x.*)::tusk_fn.goer from unnest(?::uuid[], ?::uuid[], ?::bigint[], ?::text[]) x))::tusk_fn.extras

-- name: retentions
array(select row(x.*)::tusk_fn.retention from unnest(?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[]) x)
