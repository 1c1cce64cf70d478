-- A row of a turn that nobody has and nobody waits for stays until it is pruned, so
-- that a tenant who comes and goes does not make and delete it each time; and the
-- index of turns that somebody has is of numbers.

-- +goose Up

drop index tusk_turn_held;
create index tusk_turn_held on tusk_turn (id) where held > 0;
create index tusk_turn_idle on tusk_turn (id) where held = 0 and since is null;

-- +goose Down

delete from tusk_turn where held = 0 and since is null;
drop index tusk_turn_idle;
drop index tusk_turn_held;
create index tusk_turn_held on tusk_turn (queue, tenant, partition) where held > 0;
