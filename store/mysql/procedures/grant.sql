create procedure tusk_grant_fn(in granted longblob, in tasks int, in clock bigint)
    sql security invoker
begin
    -- Grants tasks their turn, either all or none. `granted` is a list of place, lap, first and
    -- last number, by place.
    declare the_place bigint;
    declare the_first, the_last smallint;
    declare the_lap, asked int;
    declare changed, locked int default 0;
    while length(granted) > 0 do
        set the_place = conv(hex(substring(granted, 1, 8)), 16, 10),
            the_lap = conv(hex(substring(granted, 9, 4)), 16, 10),
            the_first = conv(hex(substring(granted, 13, 2)), 16, 10),
            the_last = conv(hex(substring(granted, 15, 2)), 16, 10),
            asked = the_last - the_first + 1;
        /*!80001 select count(*) into locked from (select 1 from tusk_task force index (primary)
            where place = the_place and n between the_first and the_last limit asked for update nowait) t; */
        /*M!100600 set statement innodb_lock_wait_timeout = 0 for */ update tusk_task force index (primary)
        set state = 3, run_at = clock, turn = 2
        where place = the_place and n between the_first and the_last and lap = the_lap
            and state = 2 and turn = 1 and needs = 0 and awaits = 0
        limit asked; -- as in tusk_complete
        set changed = changed + row_count(), granted = substring(granted, 17);
        delete from tusk_line where place = the_place and n between the_first and the_last limit asked;
    end while;
    if changed <> tasks then
        signal sqlstate '45000' set mysql_errno = 45002, message_text = 'some tasks wait no longer';
    end if;
    select 'tusk_grant_fn' as ended, changed as tasks;
end
