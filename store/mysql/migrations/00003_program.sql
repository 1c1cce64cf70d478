-- +goose NO TRANSACTION

-- Procedures belong to the program that calls them (see procedures/). Each statement can be repeated, as in the first
-- migration. The servers do not share a syntax for "add column if not exists".

-- +goose Up

-- The programs whose procedures are installed: the ending of the procedures' names, the version of the tables that they
-- need, and when the program last recorded that it runs.
create table if not exists tusk_program (
    name         varbinary(64) not null,
    version      bigint not null,
    installed_at bigint not null,
    seen_at      bigint not null,
    primary key (name)
) engine = innodb default charset = utf8mb4;

-- Row 5: `term` is the oldest version whose programs work with these tables.
insert ignore into tusk_leader (one, id, term, expires_at, version) values (5, null, 3, 0, 0);

-- Procedures of earlier versions have names without an ending, and their workers name no program.
insert ignore into tusk_program (name, version, installed_at, seen_at)
select '', 2, x.now, x.now
from (select timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) as now) x
where exists (
    select 1 from information_schema.routines where routine_schema = database() and routine_name = 'tusk_finish');

-- While the change waits for a transaction that uses the table, all other transactions wait behind it.
set session lock_wait_timeout = 5;

set @tusk_change = if(
    exists (select 1 from information_schema.columns
        where table_schema = database() and table_name = 'tusk_worker' and column_name = 'program'),
    'do 0', 'alter table tusk_worker add column program varbinary(64) not null default ''''');
prepare tusk_change from @tusk_change;
execute tusk_change;
deallocate prepare tusk_change;

set session lock_wait_timeout = default;

-- +goose Down
set session lock_wait_timeout = 5;

set @tusk_change = if(
    exists (select 1 from information_schema.columns
        where table_schema = database() and table_name = 'tusk_worker' and column_name = 'program'),
    'alter table tusk_worker drop column program', 'do 0');
prepare tusk_change from @tusk_change;
execute tusk_change;
deallocate prepare tusk_change;

set session lock_wait_timeout = default;

delete from tusk_leader where one = 5;
drop table if exists tusk_program;
