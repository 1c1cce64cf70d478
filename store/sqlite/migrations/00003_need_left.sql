-- A task that comes after thousands is asked, whenever one of them ends, whether it
-- waits for another: an index of just those for which it does answers at once.

-- +goose Up

create index tusk_need_left on tusk_need (task) where open is not null;

-- +goose Down

drop index tusk_need_left;
