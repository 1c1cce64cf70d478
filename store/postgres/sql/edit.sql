-- name: edit
select place, result, state from tusk_fn.edit($1, $2, $3, $4, $5, $6, $7)
