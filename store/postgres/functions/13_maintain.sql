-- Makes the next segment when the bounded ones are nearly full. For a moment nobody else can use the log. The function
-- waits for that moment without a lock, since all others would have to wait behind the lock. It gives up if a
-- transaction stays open for long.
create function tusk_fn.add_segment(_term bigint, _hours int) returns text language plpgsql set jit = off as $$
#variable_conflict use_column
declare
  _here  bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
  _last  tusk.segment;
  _tail  tusk.segment;
  _width bigint;
  _hi    bigint;
  _name  text;
  _used  boolean;
begin
  perform tusk_fn.hold_lead(_term);
  select * into _last from tusk.segment s where s.hi is not null order by s.hi desc limit 1;
  select * into _tail from tusk.segment s where s.hi is null;
  _width := least(greatest(
    (_here - _last.made_xid::text::bigint) / greatest(extract(epoch from clock_timestamp() - _last.made_at),
      60) * 3600 * _hours, 100000), 200000000)::bigint;
  if _here + _width / 2 < _last.hi::text::bigint then
    return null;
  end if;
  if not tusk_fn.await_log(2000) then
    return null;
  end if;
  _name := 'task_' || (substr(_tail.name, 6)::bigint + 1);
  perform tusk_fn.make_segment(_name);
  lock table only tusk.log in access exclusive mode;
  execute format('select exists (select from tusk.%I)', _tail.name) into _used;
  _hi := greatest(_last.hi::text::bigint, case when _used then _here + 1 else 0 end) + _width;
  execute format('alter table tusk.log detach partition tusk.%I', _tail.name);
  execute format('alter table tusk.log attach partition tusk.%I for values from (%L) to (%L)', _tail.name,
    _last.hi::text, _hi::text);
  execute format('alter table tusk.log attach partition tusk.%I for values from (%L) to (maxvalue)', _name, _hi::text);
  update tusk.segment s set hi = _hi::text::xid8, made_xid = _here::text::xid8, made_at = clock_timestamp()
    where s.name = _tail.name;
  insert into tusk.segment (name) values (_name);
  return _name;
end $$;

-- Waits for a moment at which the log can probably be locked soon: all transactions that use it end within a quarter of
-- a second. It then sets a lock timeout for the rest of the transaction, because a newer transaction may stay open, and
-- all others would queue up behind the lock that waits for it. Returns false if there is no such moment within _most
-- milliseconds.
create function tusk_fn.await_log(_most int) returns boolean language plpgsql as $$
declare
  _end   timestamptz := clock_timestamp() + _most * interval '1 ms';
  _begun timestamptz;
  _users text[];
  _waits int;
begin
  while clock_timestamp() < _end loop
    _begun := clock_timestamp();
    _users := array(
      select l.virtualtransaction from pg_locks l
      where l.relation = 'tusk.log'::regclass and l.database = (select d.oid from pg_database d
        where d.datname = current_database())
        and l.pid is distinct from pg_backend_pid());
    loop
      _waits := extract(epoch from clock_timestamp() - _begun) * 1000;
      if not exists (
        select from pg_locks l where l.relation = 'tusk.log'::regclass and l.virtualtransaction = any(_users)) then
        perform set_config('lock_timeout', greatest(50, least(50 + 2 * _waits, 250)) || 'ms', true);
        return true;
      end if;
      exit when _waits > 250;
      perform pg_sleep(0.01);
    end loop;
  end loop;
  return false;
end $$;

-- Makes the tables of a segment, which is not part of the log yet. It is one table if all queues keep their tasks for
-- about the same time.
create function tusk_fn.make_segment(_name text) returns void language plpgsql as $$
#variable_conflict use_column
declare
  c     record;
  _part text;
  _when text;
begin
  if not exists (select from tusk.class) then
    execute format('create table tusk.%I (like tusk.log including all)', _name);
    execute format('alter table tusk.%I replica identity full', _name);
    return;
  end if;
  select string_agg(format('when lane >> 16 = any(%L::bigint[]) then %L', x.queues, x.class), ' ') into _when
  from (select y.class, array_agg(y.queue order by y.queue) as queues from tusk.class y group by y.class) x;
  execute format('create table tusk.%I (like tusk.log including all)
    partition by list ((case %s else ''rest'' end) collate "C")', _name, _when);
  for c in
    select y.class, array_agg(y.queue order by y.queue) as queues from tusk.class y group by y.class
    union all
    select 'rest', null
  loop
    _part := _name || '_' || c.class;
    execute format('create table tusk.%I partition of tusk.%I for values in (%L)', _part, _name, c.class);
    execute format('alter table tusk.%I replica identity full', _part);
    insert into tusk.segment_part (name, segment, queues) values (_part, _name, c.queues);
  end loop;
end $$;

-- Drops a table of the log that nothing needs any more: a segment, or the part of a segment for the queues of one
-- class. Returns false if there is no such table or it could not be dropped. As for a new segment, nobody else can use
-- the log for a moment.
create function tusk_fn.drop_segment(_term bigint, _parent text, _name text) returns boolean language plpgsql
  set jit = off as $$
begin
  perform tusk_fn.hold_lead(_term);
  if not exists (
      select from tusk.segment s
      where s.name = _name and _parent = 'log' and (s.hi is not null or not exists (
        select from pg_inherits i where i.inhrelid = to_regclass(format('tusk.%I', _name)))))
    and not exists (select from tusk.segment_part p where p.name = _name and p.segment = _parent) then
    return false;
  end if;
  if exists (select from pg_inherits i where i.inhrelid = to_regclass(format('tusk.%I', _name))) then
    if not tusk_fn.await_log(2000) then
      return false;
    end if;
    execute format('alter table tusk.%I detach partition tusk.%I', _parent, _name);
  end if;
  execute format('drop table if exists tusk.%I', _name);
  return true;
end $$;
