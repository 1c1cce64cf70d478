-- +goose Up
-- +goose StatementBegin
-- When and how a task was last changed while it waited.
alter table tusk_note add column changed_at integer;
alter table tusk_note add column changed text;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
alter table tusk_note drop column changed;
alter table tusk_note drop column changed_at;
-- +goose StatementEnd
