-- up
set local lock_timeout = '5s';

-- Enqueues a task from any language, or from a trigger. With a key it returns
-- the id of the unfinished task that has the key already, if there is one.
create function tusk.enqueue(kind text, args json default '{}', queue text default 'default', priority int default 0,
  run_at timestamptz default null, key text default null, tenant text default null, tags text[] default null)
returns uuid language plpgsql as $$
#variable_conflict use_variable
declare
  _lane bigint := tusk.lane_of(queue, priority);
  _id   uuid;
begin
  if kind is null or kind = '' or queue is null or queue = '' or priority not between -32768 and 32767 then
    raise exception 'a task needs a kind, a queue, and a priority from -32768 to 32767';
  end if;
  perform tusk.name_lanes(array[_lane], array[queue]);
  select p.id into _id
  from tusk.put(array[_lane], array[tusk.new_id()], array[kind], array[convert_to(args::text, 'UTF8')], array[tenant],
    array[tags::text], array[null::bytea], array[run_at], array[0::bigint], array[null::timestamptz], array[0::bigint],
    array[nullif(key, '')], array[0::smallint], array[null::timestamptz]) p;
  return _id;
end $$;

-- A UUID of version 7.
create function tusk.new_id() returns uuid language sql volatile as $$
  select (lpad(to_hex((extract(epoch from clock_timestamp()) * 1000)::bigint), 12, '0') || '7' || substr(r, 2, 3)
    || to_hex((get_byte(decode(substr(r, 5, 2), 'hex'), 0) & 63) | 128) || substr(r, 7, 14))::uuid
  from (select replace(gen_random_uuid()::text, '-', '') as r) x
$$;

-- down
set local lock_timeout = '5s';
drop function tusk.new_id, tusk.enqueue;
