create procedure tusk_complete_fn(in done longblob, in tasks int, in delta longblob, in leases longblob)
    sql security invoker
begin
    -- Completes tasks, either all or none. `done` is a list by place. Each entry has the place,
    -- the lap, the first and the last number, when the tasks were claimed, how long ago they
    -- ended (in microseconds), the worker, and whether they have a turn to give back (2).
    -- `leases` has the token and the time of each lease that has ended.
    declare clock bigint default timestampdiff(microsecond, '1970-01-01', utc_timestamp(6));
    declare the_place, the_claim, the_age bigint;
    declare the_first, the_last smallint;
    declare the_lap, the_turn, asked int;
    declare changed int default 0;
    declare back longblob default '';
    while length(done) > 0 do
        set the_place = conv(hex(substring(done, 1, 8)), 16, 10), the_lap = conv(hex(substring(done, 9, 4)), 16, 10),
            the_first = conv(hex(substring(done, 13, 2)), 16, 10), the_last = conv(hex(substring(done, 15, 2)), 16, 10),
            the_claim = conv(hex(substring(done, 17, 8)), 16, 10), the_age = conv(hex(substring(done, 25, 8)), 16, 10),
            the_turn = ord(substring(done, 49, 1)), asked = the_last - the_first + 1;
        update tusk_task force index (primary)
        set state = 6, attempt = attempt + 1, crashes = 0, reason = null, claimed_at = the_claim,
            worker = substring(done, 33, 16), finished_at = greatest(the_claim, clock - the_age), turn = turn div 2
        where place = the_place and n between the_first and the_last and lap = the_lap
            and state = 3 and needed = 0 and turn = the_turn
        limit asked; -- so that the row after the last task, which another claim may have, is not read and locked
        set changed = changed + row_count();
        if the_turn > 0 then
            set back = concat(back, substring(done, 1, 16));
        end if;
        set done = substring(done, 50);
    end while;
    if changed <> tasks then
        signal sqlstate '45000' set mysql_errno = 45002, message_text = 'some leases have ended';
    end if;
    if length(back) > 0 then
        insert into tusk_held (back, refs) values (1, back);
    end if;
    insert into tusk_delta (at, body) values (clock, delta);
    while length(leases) > 0 do
        delete from tusk_lease
        where token = substring(leases, 1, 16) and claimed_at = conv(hex(substring(leases, 17, 8)), 16, 10);
        set leases = substring(leases, 25);
    end while;
    select 'tusk_complete_fn' as ended, changed as tasks;
end
