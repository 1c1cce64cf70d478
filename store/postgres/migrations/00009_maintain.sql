-- up
set local lock_timeout = '5s';

-- Housekeeping of lanes and leases, a short transaction for each: counts new
-- rows into the lane's tally, trims its old positions, moves an idle lane on so
-- that old segments are behind it, and closes what transactions have finished.
-- Most of many lanes need nothing: they are sorted out in one statement.
create procedure tusk.tidy(_term bigint, _keep_positions int, _idle_xids bigint) language plpgsql as $$
#variable_conflict use_column
declare
  _lane bigint;
  _held tid[];
  x     record;
begin
  perform tusk.lead(_term);
  foreach _lane in array tusk.untidy_lanes(_keep_positions, _idle_xids) loop
    if tusk.try_lane(_lane) then
      perform tusk.tidy_lane(_lane, _keep_positions, _idle_xids);
    end if;
    commit;
    perform tusk.lead(_term);
  end loop;
  for x in
    select l.token, l.lane from tusk.lease l
    where bit_count(l.open) = 0 or exists (select from tusk.finished f where f.token = l.token)
  loop
    -- Whoever holds it closes it, too; judged without the lock, what has just been
    -- closed would be open again.
    _held := array(select l.ctid from tusk.lease l where l.token = x.token and l.lane = x.lane for update skip locked);
    if cardinality(_held) > 0 then
      perform tusk.close(x.token, x.lane, '{}', _held);
    end if;
    commit;
  end loop;
  delete from tusk.finished f where not exists (select from tusk.lease l where l.token = f.token);
end $$;

-- The lanes that have something to be tidied.
create function tusk.untidy_lanes(_keep_positions int, _idle_xids bigint) returns bigint[] language plpgsql
set enable_memoize = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
  _here pg_snapshot := pg_current_snapshot();
  _end  xid8 := pg_snapshot_xmax(_here);
begin
  return array(
    select l.id
    from (select distinct l.id from tusk.lane l) l
    left join tusk.lane_tally a on a.lane = l.id
    left join lateral (select q.no, q.done, q.win from tusk.lane_position q where q.lane = l.id order by q.no desc limit 1) p on true
    where a.lane is null
      or _end::text::bigint - pg_snapshot_xmax(a.seen)::text::bigint > _idle_xids
      or exists (select from tusk.task t where t.lane = l.id and t.xid >= pg_snapshot_xmax(a.seen) and t.xid < _end)
      or exists (
        select from pg_snapshot_xip(a.seen) late
        where pg_visible_in_snapshot(late, _here) and exists (select from tusk.task t where t.lane = l.id and t.xid = late))
      or p.win is null and (
        _end::text::bigint - pg_snapshot_xmin(p.done)::text::bigint > _idle_xids
        or pg_snapshot_xmin(p.done) < pg_snapshot_xmax(p.done) and pg_snapshot_xmin(_here) >= pg_snapshot_xmax(p.done))
      or exists (select from tusk.lane_position q where q.lane = l.id and q.no < p.no - 2 * _keep_positions));
end $$;

-- The lane's lock is held.
create function tusk.tidy_lane(_lane bigint, _keep_positions int, _idle_xids bigint) returns void language plpgsql as $$
#variable_conflict use_column
declare
  _here pg_snapshot := pg_current_snapshot();
  _seen pg_snapshot;
  _rows bigint;
  p     tusk.lane_position;
begin
  select coalesce(max(a.seen::text), '1:1:')::pg_snapshot into _seen from tusk.lane_tally a where a.lane = _lane;
  select (
    select coalesce(sum(late.rows), 0)::bigint from pg_snapshot_xip(_seen) x
    cross join lateral (select count(*) as rows from tusk.task t where t.lane = _lane and t.xid = x) late
    where pg_visible_in_snapshot(x, _here)) + (
    select count(*) from tusk.task t
    where t.lane = _lane and t.xid >= pg_snapshot_xmax(_seen) and t.xid < pg_snapshot_xmax(_here)
      and pg_visible_in_snapshot(t.xid, _here))
  into _rows;
  if _rows > 0 or pg_snapshot_xmax(_here)::text::bigint - pg_snapshot_xmax(_seen)::text::bigint > _idle_xids then
    insert into tusk.lane_tally as a (lane, seen, added) values (_lane, _here, _rows)
    on conflict (lane) do update set seen = excluded.seen, added = a.added + excluded.added;
  end if;
  select * into p from tusk.lane_position q where q.lane = _lane order by q.no desc limit 1;
  if not found then
    return;
  end if;
  if exists (select from tusk.lane_position q where q.lane = _lane and q.no < p.no - 2 * _keep_positions) then
    delete from tusk.lane_position q where q.lane = _lane and q.no < p.no - _keep_positions;
  end if;
  -- Whom a claim saw at work is looked for by every claim after it, until the lane is
  -- moved on.
  if p.win is null and (
      pg_snapshot_xmax(_here)::text::bigint - pg_snapshot_xmin(p.done)::text::bigint > _idle_xids
      or pg_snapshot_xmin(p.done) < pg_snapshot_xmax(p.done) and pg_snapshot_xmin(_here) >= pg_snapshot_xmax(p.done))
    and not exists (
      select from pg_snapshot_xip(p.done) x
      cross join lateral (select from tusk.task t where t.lane = _lane and t.xid = x limit 1) late)
    and not exists (select from tusk.task t where t.lane = _lane and t.xid >= pg_snapshot_xmax(p.done)) then
    insert into tusk.lane_position (lane, no, done, win, at_xid, at_n, claimed)
    values (_lane, p.no + 1, _here, null, '0', 0, p.claimed);
  end if;
end $$;

-- Makes the next segment when the bounded ones come to an end. It needs the log
-- for itself for a moment, and gives up at once when somebody uses it.
create function tusk.add_segment(_term bigint, _hours int) returns text language plpgsql as $$
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
  perform tusk.hold_lead(_term);
  select * into _last from tusk.segment s where s.hi is not null order by s.hi desc limit 1;
  select * into _tail from tusk.segment s where s.hi is null;
  _width := least(greatest(
    (_here - _last.made_xid::text::bigint) / greatest(extract(epoch from clock_timestamp() - _last.made_at), 60) * 3600 * _hours, 100000), 200000000)::bigint;
  if _here + _width / 2 < _last.hi::text::bigint then
    return null;
  end if;
  perform set_config('lock_timeout', '50ms', true);
  lock table tusk.task in access exclusive mode;
  execute format('select exists (select from tusk.%I)', _tail.name) into _used;
  _hi := greatest(_last.hi::text::bigint, case when _used then _here + 1 else 0 end) + _width;
  _name := 'task_' || (substr(_tail.name, 6)::bigint + 1);
  execute format('alter table tusk.task detach partition tusk.%I', _tail.name);
  execute format('alter table tusk.task attach partition tusk.%I for values from (%L) to (%L)', _tail.name, _last.hi::text, _hi::text);
  execute format('create table tusk.%I partition of tusk.task for values from (%L) to (maxvalue)', _name, _hi::text);
  update tusk.segment s set hi = _hi::text::xid8, made_xid = _here::text::xid8, made_at = clock_timestamp() where s.name = _tail.name;
  insert into tusk.segment (name) values (_name);
  return _name;
end $$;

-- Names a segment that nothing needs any more: no transaction can write to it,
-- every lane is past it, no lease and no completed task points into it.
create function tusk.spent_segment() returns text language plpgsql as $$
#variable_conflict use_column
declare
  s tusk.segment;
begin
  select * into s from tusk.segment x where x.hi is not null order by x.hi limit 1;
  if s.hi > pg_snapshot_xmin(pg_current_snapshot())
    or (select count(*) from tusk.segment x where x.hi is not null) < 2
    or exists (select from tusk.lease l where l.lo < s.hi)
    or exists (select from tusk.outcome o where o.lo < s.hi)
    or exists (
      select from (select distinct l.id from tusk.lane l) l
      left join lateral (select p.done from tusk.lane_position p where p.lane = l.id order by p.no desc limit 1) p on true
      where pg_snapshot_xmin(coalesce(p.done, '1:1:')) < s.hi
        and exists (select from tusk.task t where t.lane = l.id and t.xid < s.hi and tusk.unclaimed(t.lane, t.xid, t.n))) then
    return null;
  end if;
  return s.name;
end $$;

-- down
set local lock_timeout = '5s';
drop procedure tusk.tidy;
drop function tusk.spent_segment, tusk.add_segment, tusk.tidy_lane, tusk.untidy_lanes;
