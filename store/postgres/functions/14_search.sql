-- Up to _limit tasks that have all of _tags or, if that is null, that were enqueued in a span of time. They are
-- finished or waiting tasks, in no particular order.
create function tusk_fn.few(_finished boolean, _tags text[], _since timestamptz, _until timestamptz, _limit int)
  returns setof uuid language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = on set jit = off as $$
begin
  if _finished and _tags is not null then
    return query select s.id from tusk.dead s where s.tags @> _tags limit _limit;
  elsif _finished then
    return query select s.id from tusk.dead s where s.enqueued_at >= _since and s.enqueued_at < _until limit _limit;
  elsif _tags is not null then
    return query select s.id from tusk.unready s where s.tags @> _tags limit _limit;
  else
    return query
    select s.id
    from (
      (select w.id from tusk.waiting w
       where w.line is null and w.enqueued_at >= _since and w.enqueued_at < _until limit _limit)
      union all
      (select w.id from tusk.unready w where w.line is not null limit _limit)) s -- the caller checks the time of these
    limit _limit;
  end if;
end $$;
