-- Up to _limit tasks in the lines of some queues or, if _queues is null, of all. If _tenant is not null, only its
-- tasks.
create function tusk_fn.few_line(_queues bigint[], _tenant text, _limit int) returns setof uuid language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off as $$
begin
  return query
  select s.id
  from (select distinct u.queue from unnest(coalesce(_queues, array(select l.id >> 16 from tusk.lane l))) u(queue)) q
  cross join lateral (
    (select w.id from tusk.waiting w
     where _tenant is null and w.line is not null and w.lane >> 16 = q.queue
     order by w.lane >> 16, coalesce(w.tenant, ''), coalesce(w.partition, ''), w.lane, w.line, w.n limit _limit)
    union all
    (select w.id from tusk.waiting w
     where w.line is not null and w.lane >> 16 = q.queue and coalesce(w.tenant, '') = _tenant
     order by w.lane >> 16, coalesce(w.tenant, ''), coalesce(w.partition, ''), w.lane, w.line, w.n limit _limit)) s
  limit _limit;
end $$;

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
    return query select s.id from tusk.waiting s where s.tags @> _tags limit _limit;
  else
    return query
    select s.id
    from (
      (select w.id from tusk.waiting w
       where w.line is null and w.enqueued_at >= _since and w.enqueued_at < _until limit _limit)
      union all
      select l from tusk_fn.few_line(null, null, _limit) l) s -- the caller checks the time of these
    limit _limit;
  end if;
end $$;
