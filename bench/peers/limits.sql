-- The upper limit of what the server can do: no order, no index, no state, no lease.

-- name: tables
create table bare (args text not null);
create table bare_history (args text not null, finished timestamptz not null default clock_timestamp());

-- name: insert
insert into bare (args) select unnest($1::text[])

-- name: delete
with gone as (
    delete from bare where ctid = any (array(select ctid from bare limit $1 for update skip locked)) returning args
), kept as (
    insert into bare_history (args) select args from gone
)
select args from gone
