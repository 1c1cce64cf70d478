create procedure tusk_finish_fn(in done longblob, in tasks int, in delta longblob, in leases longblob)
    sql security invoker
begin
    -- tusk_complete as a transaction by itself, which waits for no task that somebody holds.
    -- MariaDB is told so by a setting of the statement, MySQL by taking the
    -- locks first: a user's transaction, which calls tusk_complete itself, does wait.
    declare ahead longblob default done;
    declare locked int;
    declare exit handler for sqlexception begin rollback; resignal; end;
    start transaction;
    /*!80001 while length(ahead) > 0 do
        select count(*) into locked
        from (select 1 from tusk_task force index (primary)
            where place = conv(hex(substring(ahead, 1, 8)), 16, 10)
                and n between conv(hex(substring(ahead, 13, 2)), 16, 10) and conv(hex(substring(ahead, 15, 2)), 16, 10)
            for update nowait) t;
        set ahead = substring(ahead, 50);
    end while; */
    /*M!100600 set statement innodb_lock_wait_timeout = 0 for */ call tusk_complete_fn(done, tasks, delta, leases);
    commit;
    select 'tusk_finish_fn' as ended, tasks;
end
