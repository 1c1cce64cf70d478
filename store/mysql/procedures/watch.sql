create procedure tusk_watch_fn(in queues longblob, in pause double, in looks int)
    sql security invoker
begin
    -- Waits until one of `queues` (for each, the length of its name, then the name) has available
    -- tasks. Returns the places in the list of those that do, as bytes. It looks at most `looks`
    -- times, and waits for `pause` seconds between, during which it holds no locks.
    declare the_queue varbinary(255);
    declare ahead, found longblob default '';
    declare i int;
    looking: loop
        set ahead = queues, i = 0;
        while length(ahead) > 0 do
            set the_queue = substring(ahead, 2, ord(ahead)), ahead = substring(ahead, 2 + ord(ahead));
            if exists (select 1 from tusk_ready force index (primary) where queue = the_queue limit 1) then
                set found = concat(found, char(i));
            end if;
            set i = i + 1;
        end while;
        set looks = looks - 1;
        if length(found) > 0 or looks <= 0 then
            leave looking;
        end if;
        do sleep(pause);
    end loop;
    select found;
    select 'tusk_watch_fn' as ended, 0 as tasks;
end
