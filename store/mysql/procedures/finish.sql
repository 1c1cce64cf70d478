create procedure tusk_finish_fn(in done longblob, in tasks int, in delta longblob, in leases longblob)
    sql security invoker
begin
    -- Runs tusk_complete in a transaction of its own that does not wait for tasks that others
    -- have locked. On MariaDB a setting of the statement has this effect. On MySQL the procedure
    -- takes the locks first. A user's transaction calls tusk_complete itself, and does wait.
    declare ahead longblob default done;
    declare locked, asked int;
    declare the_first smallint;
    declare exit handler for sqlexception begin rollback; resignal; end;
    start transaction;
    /*!80001 while length(ahead) > 0 do
        set the_first = conv(hex(substring(ahead, 13, 2)), 16, 10),
            asked = conv(hex(substring(ahead, 15, 2)), 16, 10) - the_first + 1;
        select count(*) into locked
        from (select 1 from tusk_task force index (primary)
            where place = conv(hex(substring(ahead, 1, 8)), 16, 10)
                and n between the_first and the_first + asked - 1
            limit asked -- as in tusk_complete
            for update nowait) t;
        set ahead = substring(ahead, 50);
    end while; */
    /*M!100600 set statement innodb_lock_wait_timeout = 0 for */ call tusk_complete_fn(done, tasks, delta, leases);
    commit;
    select 'tusk_finish_fn' as ended, tasks;
end
