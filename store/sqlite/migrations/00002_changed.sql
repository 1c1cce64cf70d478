-- +goose Up
-- When a task was last changed while it waited, and how.
alter table tusk_note add column changed_at integer;
alter table tusk_note add column changed text;

-- +goose Down
alter table tusk_note drop column changed;
alter table tusk_note drop column changed_at;
