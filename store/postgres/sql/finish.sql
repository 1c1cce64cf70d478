-- name: write_notes
select tusk.write_notes($1::uuid[], $2::uuid[], $3::text[], $4::bytea[], $5::text[])

-- name: finish
select token, id, held
from tusk.finish($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)

-- name: finish_tx
select tusk.finish_tx($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
