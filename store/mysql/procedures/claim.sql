create procedure tusk_claim_fn(in requests longblob, in wanted int, in queues longblob, in per_row int)
    sql security invoker
begin
    -- Leases up to `wanted` available tasks of `queues` (for each, the length of its name, then
    -- the name) and returns them in order. It skips rows that other claims have locked. The
    -- tasks go to `requests` (token, worker, maximum number of tasks), one after the other.
    -- `per_row` is how many tasks a row of tusk_ready is expected to cover. A task is read
    -- without a lock, so it may be read as it was before the transaction that made it
    -- available. Then it has another lap than its row in tusk_ready, which the lease names, or
    -- it is missing. The last result therefore says how many tasks were leased.
    declare the_queue varbinary(255);
    declare clock, the_at, the_place, run_place bigint;
    declare the_priority, the_first, the_next, the_last, run_first, run_last smallint;
    declare the_lap, run_lap, had, asked, seen, share, taking, given int;
    declare counts, spans longblob default '';
    declare ended tinyint;
    declare asked_for int default wanted;
    declare rows_ahead cursor for
        select priority, at, place, first, next, last, lap
        from tusk_ready force index (primary)
        where queue = the_queue
        order by priority, at, place, first
        limit asked
        for update skip locked;
    declare continue handler for not found set ended = 1;
    declare exit handler for sqlexception begin rollback; resignal; end;
    start transaction;
    set seen = 0;
    while seen < length(requests) do
        if coalesce((select dead from tusk_worker where id = substring(requests, seen + 17, 16)), 1) <> 0 then
            signal sqlstate '45000' set mysql_errno = 45001, message_text = 'the worker is dead';
        end if;
        set seen = seen + 36;
    end while;
    set clock = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)),
        share = conv(hex(substring(requests, 33, 4)), 16, 10);
    while wanted > 0 and length(queues) > 0 do
        set the_queue = substring(queues, 2, ord(queues)), queues = substring(queues, 2 + ord(queues)), had = wanted;
        repeat
            set asked = (wanted + per_row - 1) div per_row + (per_row > 1), seen = 0, ended = 0, run_place = null;
            open rows_ahead;
            cutting: loop
                fetch rows_ahead into the_priority, the_at, the_place, the_first, the_next, the_last, the_lap;
                if run_place is not null and (ended or wanted = 0 or the_place <> run_place
                    or the_next <> run_last + 1 or the_lap <> run_lap)
                then
                    select clock, run_lap, place, n, lap, id, queue, kind, priority, attempt, crashes, enqueued_at,
                        run_at, expires_at, tenant, tkey, tags, settings, workflow, part, turn, args
                    from tusk_task force index (primary)
                    where place = run_place and n between run_first and run_last
                    order by n;
                    set run_place = null;
                end if;
                if ended or wanted = 0 then
                    leave cutting;
                end if;
                set seen = seen + 1, taking = least(wanted, the_last - the_next + 1), wanted = wanted - taking;
                if the_next + taking > the_last then
                    delete from tusk_ready
                    where queue = the_queue and priority = the_priority and at = the_at and place = the_place
                        and first = the_first;
                else
                    update tusk_ready force index (primary) set next = the_next + taking
                    where queue = the_queue and priority = the_priority and at = the_at and place = the_place
                        and first = the_first;
                end if;
                if run_place is null then
                    set run_place = the_place, run_first = the_next, run_lap = the_lap;
                end if;
                set run_last = the_next + taking - 1;
                while taking > 0 do
                    set given = least(taking, share), taking = taking - given, share = share - given,
                        spans = concat(spans, unhex(concat(lpad(hex(the_place), 16, '0'), lpad(hex(the_lap), 8, '0'),
                            lpad(hex(the_next), 4, '0'), lpad(hex(the_next + given - 1), 4, '0')))),
                        the_next = the_next + given;
                    if share = 0 then
                        insert into tusk_lease (token, worker, claimed_at, spans)
                        values (left(requests, 16), substring(requests, 17, 16), clock, spans);
                        set spans = '', requests = substring(requests, 37),
                            share = conv(hex(substring(requests, 33, 4)), 16, 10);
                    end if;
                end while;
            end loop;
            close rows_ahead;
            set per_row = greatest((had - wanted) div greatest(seen, 1), 1);
        until wanted = 0 or seen < asked end repeat;
        if wanted < had then
            set counts = concat(counts, if(counts = '', '', ','),
                '{"queue":', json_quote(convert(the_queue using utf8mb4)),
                ',"state":"available","tasks":', wanted - had,
                '},{"queue":', json_quote(convert(the_queue using utf8mb4)),
                ',"state":"running","tasks":', had - wanted, '}');
        end if;
    end while;
    if spans <> '' then
        insert into tusk_lease (token, worker, claimed_at, spans)
        values (left(requests, 16), substring(requests, 17, 16), clock, spans);
    end if;
    if counts <> '' then
        insert into tusk_delta (at, body) values (clock, concat('{"counts":[', counts, ']}'));
    end if;
    commit;
    select 'tusk_claim_fn' as ended, asked_for - wanted as tasks;
end
