-- name: write_notes
select tusk.write_notes($1::uuid[], $2::uuid[], $3::text[], $4::bytea[], $5::text[])

-- name: write_free_notes
select tusk.write_free_notes($1::uuid[], $2::uuid[], $3::text[], $4::bytea[], $5::text[])

-- name: finish_plain
select token, id, held, queue from tusk.finish_plain($1, $2, $3, $4, $5, $6, $7)

-- name: finish_lease
select token, id, held, queue from tusk.finish_lease($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)

-- name: finish
select token, id, held, queue
from tusk.finish($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23,
  $24)

-- name: finish_tx
select tusk.finish_tx($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)

-- name: finish_more
select token, id, held, queue
from tusk.finish_more($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22,
  $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41, $42,
  $43, $44, $45, $46, $47, $48, $49, $50, $51, $52, $53, $54)

-- name: finish_tx_more
select tusk.finish_tx_more($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,
  $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36,
  $37, $38, $39, $40, $41, $42, $43, $44, $45, $46)
