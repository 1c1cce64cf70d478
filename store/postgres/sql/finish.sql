-- name: add_notes
select tusk_fn.add_notes($1::uuid[], $2::text[], $3::bytea[], $4::text[])

-- name: write_free_notes
select tusk_fn.write_free_notes($1::uuid[], $2::uuid[], $3::text[], $4::bytea[], $5::text[])

-- name: write_last_notes
-- The notes of a worker that signs off. A worker that has gone, or a beat that comes late, writes nothing.
select tusk_fn.write_free_notes($1::uuid[], $2::uuid[], $3::text[], $4::bytea[], $5::text[])
from tusk.worker w
where w.id = $6 and not w.dead and ($7::bigint = 0 or w.seq < $7)

-- name: finish_plain
select token, id, held, queue from tusk_fn.finish_plain($1, $2, $3, $4, $5, $6, $7)

-- name: finish_lease
select token, id, held, queue from tusk_fn.finish_lease($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)

-- name: finish
select token, id, held, queue
from tusk_fn.finish($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21,
  $22, $23, $24)

-- name: finish_turns
select token, id, held, queue
from tusk_fn.finish_turns($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20,
  $21, $22, $23, $24, $25)

-- name: finish_noted
-- Notes are stored only when all ends were accepted.
with f as materialized (
  select token, id, held, queue
  from tusk_fn.finish($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21,
    $22, $23, $24))
select token, id, held, queue from f
union all
select null, null, null, null
where case when exists (select from f where id is not null or held is not null) then false
  else tusk_fn.add_free_notes($25::uuid[], $26::text[], $27::bytea[], $28::text[]) end

-- name: finish_tx
select tusk_fn.finish_tx($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)

-- name: finish_more
select token, id, held, queue
from tusk_fn.finish_more($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20,
  $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41, $42, $43,
  $44, $45, $46, $47, $48, $49, $50, $51, $52, $53, $54)

-- name: finish_more_noted
with f as materialized (
  select token, id, held, queue
  from tusk_fn.finish_more($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20,
    $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41, $42, $43,
    $44, $45, $46, $47, $48, $49, $50, $51, $52, $53, $54))
select token, id, held, queue from f
union all
select null, null, null, null
where case when exists (select from f where id is not null or held is not null) then false
  else tusk_fn.add_free_notes($55::uuid[], $56::text[], $57::bytea[], $58::text[]) end

-- name: finish_tx_more
select tusk_fn.finish_tx_more($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,
  $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36,
  $37, $38, $39, $40, $41, $42, $43, $44, $45, $46)
