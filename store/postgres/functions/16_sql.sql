-- Enqueues a task from any language, or from a trigger. If an unfinished task has the key already, its id is returned.
create function tusk_fn.enqueue(kind text, args json, queue text, priority int, run_at timestamptz, key text,
  tenant text, tags text[])
returns uuid language plpgsql as $$
#variable_conflict use_variable
declare
  _lane  bigint;
  _id    uuid;
  _turns boolean; -- the queue has other limits than per_worker
begin
  if not exists (select from tusk.server s, pg_control_system() c where s.system_identifier = c.system_identifier) then
    raise exception 'tusk.enqueue: database was restored from another server'
      using errcode = '55000', hint = 'stop all workers and run tusk db rebase';
  end if;
  perform tusk_fn.check_task(kind, args, queue, priority, run_at, key, tenant, tags);
  _lane := tusk_fn.lane_of(queue, priority);
  perform tusk_fn.name_lanes(array[_lane], array[queue]);
  _turns := exists (
    select from (
      select convert_from(r.body, 'UTF8')::jsonb as limits from tusk.record r where r.kind = 'limits'
        and r.name = queue offset 0) l
    where coalesce((l.limits ->> 'per_worker')::numeric, 0) = 0 or l.limits - 'per_worker' <> '{}');
  select p.id into _id
  from tusk_fn.put(array[row(_lane, tusk_fn.new_id(), kind, convert_to(args::text, 'UTF8'), nullif(tenant, ''),
    nullif(tags, '{}')::text, null, run_at, 0, null, 0, nullif(key, ''), 0, null, null,
    nullif(_turns, false), null)::tusk_fn.new_task]) p;
  return _id;
end $$;

-- Refuses invalid values of tasks. The limits are the same as in the library.
create function tusk_fn.check_task(_kind text, _args json, _queue text, _priority int, _run_at timestamptz, _key text,
  _tenant text, _tags text[])
returns void language plpgsql as $$
declare
  _name    constant text := '^(?!.*\.\.)[a-z0-9][a-z0-9_.:-]{0,63}$';
  _no_name constant text := ' is not a name: want 1 to 64 of a-z 0-9 _ . : - that begin with a letter or digit, '
    'without ..';
  -- Control characters and characters that change the direction of text, which cannot be shown.
  _odd     constant text := '[\u0001-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]';
  _problem text;
  _rest    text;
begin
  _problem := coalesce(case
    when _kind ~ _name is not true then 'kind ' || quote_nullable(left(_kind, 64)) || _no_name
    when _queue ~ _name is not true then 'queue ' || quote_nullable(left(_queue, 64)) || _no_name
    when nullif(_tenant, '') !~ _name then 'tenant ' || quote_literal(left(_tenant, 64)) || _no_name
    when _priority between -32768 and 32767 is not true
      then format('priority is %s, want -32768 to 32767', coalesce(_priority::text, 'null'))
    when _run_at not between '1971-01-01 00:00:00+00' and clock_timestamp() + interval '3650 days'
      then format('run_at is %s, want a time from 1971 on, at most 3650 days ahead', _run_at)
    when octet_length(_key) > 255 then format('key has %s bytes, at most 255 are allowed', octet_length(_key))
    when _key like 'unique:%' or _key like 'schedule:%'
      then format('key %s begins with unique: or schedule:, which are kept for unique tasks and schedules',
        quote_literal(left(_key, 64)))
    when _key ~ _odd then 'key has a control character'
    when array_ndims(_tags) > 1 then format('tags has %s dimensions, want a plain array', array_ndims(_tags))
    when cardinality(_tags) > 16 then format('tags has %s tags, at most 16 are allowed', cardinality(_tags))
    when array_to_string(_tags, '') ~ _odd then 'tags has a control character'
    when _args is null then 'args is null, want a JSON value'
    when octet_length(_args::text) > 262144
      then format('args has %s bytes, at most 262144 are allowed: store large data elsewhere and pass a reference',
        octet_length(_args::text)) end, (
    select format('tags has %s: a tag has 1 to 64 bytes', quote_nullable(left(t, 64))) from unnest(_tags) t
    where octet_length(t) between 1 and 64 is not true limit 1));
  if _problem is null then
    _rest := translate(regexp_replace(regexp_replace(_args::text, '"([^"\\]|\\.)*"', '', 'g'), '[^][{}]', '', 'g'),
      '{}', '[]');
    for i in 1 .. 64 loop
      exit when _rest = '';
      _rest := replace(_rest, '[]', '');
    end loop;
    _problem := case when _rest <> '' then 'args is nested deeper than 64 levels' end;
    perform _args::jsonb; -- refuses NUL and lone surrogates
  end if;
  if _problem is not null then
    raise exception 'tusk.enqueue: %', _problem using errcode = '22023';
  end if;
exception when untranslatable_character or invalid_text_representation or numeric_value_out_of_range then
  raise exception 'tusk.enqueue: args cannot be stored: %', sqlerrm using errcode = '22023';
end $$;

-- A UUID of version 7.
create function tusk_fn.new_id() returns uuid language sql volatile as $$
  select (lpad(to_hex((extract(epoch from clock_timestamp()) * 1000)::bigint), 12, '0') || '7' || substr(r, 2, 3)
    || to_hex((get_byte(decode(substr(r, 5, 2), 'hex'), 0) & 63) | 128) || substr(r, 7, 14))::uuid
  from (select replace(gen_random_uuid()::text, '-', '') as r) x
$$;
