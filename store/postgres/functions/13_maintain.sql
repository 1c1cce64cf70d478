-- Makes the next segment, of _width transactions, if the bounded ones are nearly full. For a moment nobody else can use
-- the log.
create function tusk_fn.add_segment(_term bigint, _width bigint) returns text language plpgsql set jit = off as $$
#variable_conflict use_column
declare
  _here  bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
  _last  tusk.segment;
  _tail  tusk.segment;
  _hi    bigint;
  _name  text;
  _used  boolean;
begin
  perform tusk_fn.hold_lead(_term);
  select * into _last from tusk.segment s where s.hi is not null order by s.hi desc limit 1;
  select * into _tail from tusk.segment s where s.hi is null;
  if _here + _width / 2 < _last.hi::text::bigint then
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
-- class. Returns false if there is no such table. As for a new segment, nobody else can use the log for a moment.
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
    execute format('alter table tusk.%I detach partition tusk.%I', _parent, _name);
  end if;
  execute format('drop table if exists tusk.%I', _name);
  return true;
end $$;
