-- Makes millions of tasks on the server, in the form in which the engine stores them.
-- These functions are dropped with the schema.

-- Returns ids that sort in the order in which they are made, as the ids of a client do.
create function tusk.bench_id(_g int) returns uuid language sql volatile as $$
  select (lpad(to_hex((extract(epoch from statement_timestamp()) * 1000)::bigint), 12, '0') || '7000' || '8'
    || lpad(to_hex(pg_backend_pid()), 7, '0') || lpad(to_hex(_g), 8, '0'))::uuid
$$;

-- Adds tasks that can be claimed, in one transaction.
create function tusk.bench_add(_n int, _kind text, _args text) returns void language sql as $$
  insert into tusk.log (lane, id, kind, args)
  select tusk_fn.lane_of('default', 0), tusk.bench_id(g), _kind, convert_to(_args, 'UTF8') from generate_series(1, _n) g
$$;

-- Adds tasks that can be claimed, in transactions of at most _batch.
create procedure tusk.bench_fill(_n int, _batch int, _kind text, _args text) language plpgsql as $$
begin
  while _n > 0 loop
    perform tusk.bench_add(least(_n, _batch), _kind, _args);
    commit;
    _n := _n - _batch;
  end loop;
end $$;

-- Has a worker claim tasks and complete them, in batches, through the engine's own
-- functions.
create procedure tusk.bench_finish(_n int, _batch int, _worker uuid) language plpgsql as $$
declare
  _token uuid;
  l      tusk.lease;
begin
  while _n > 0 loop
    _token := gen_random_uuid();
    perform from tusk_fn.claim(_worker, _token, array[tusk_fn.lane_of('default', -32768)], least(_n, _batch), false, _n,
      false, false);
    commit;
    select * into l from tusk.lease x where x.token = _token;
    perform from tusk_fn.finish(row(array[l.token], array[l.lane], array[0], array[cardinality(l.firsts)], array[0],
      l.firsts, l.counts, array[cardinality(l.firsts)], null, null)::tusk_fn.flush, '{}', '{}');
    commit;
    _n := _n - _batch;
  end loop;
end $$;

-- Adds tasks that are due in a day.
create procedure tusk.bench_schedule(_n int, _kind text, _args text) language sql as $$
  insert into tusk.waiting (id, state, lane, run_at, enqueued_at, attempt, crashes, kind, args)
  select tusk.bench_id(g), 1, tusk_fn.lane_of('default', 0),
    statement_timestamp() + interval '1 day' + g * interval '1 ms', statement_timestamp(),
    0, 0, _kind, convert_to(_args, 'UTF8')
  from generate_series(1, _n) g
$$;

select tusk_fn.name_lanes(array[tusk_fn.lane_of('default', 0)], array['default']);
