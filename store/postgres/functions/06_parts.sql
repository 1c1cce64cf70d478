-- A flush may end only a part of a lease. The rest stays open.

-- The tasks of a group.
create function tusk_fn.group_of(f tusk_fn.flush, g int) returns uuid[] language sql stable as $$
  select array(select i.id from tusk_fn.ids_of(f.firsts[f.offs[g] + 1 : f.offs[g] + f.sizes[g]],
    f.counts[f.offs[g] + 1 : f.offs[g] + f.sizes[g]]) i)
$$;

-- For groups that end parts of their leases: which tasks of each lease stay open, or null if a task of the group is not
-- open or if judge_parts has to find that out. It compares runs, which is many times as fast as a search for each of
-- thousands of tasks. It reads only leases that are locked.
create function tusk_fn.open_parts(f tusk_fn.flush, _part int[], _locked tid[]) returns varbit[] language plpgsql as $$
#variable_conflict use_column
declare
  _all    varbit[];
  _firsts uuid[];
  _counts int[];
  _places int[];
  _open   varbit;
  _many   int;
  l       tusk.lease;
  g       int;
begin
  foreach g in array _part loop
    continue when f.sizes[g] > 16 and f.sizes[g] * 4 > f.ends[g] - coalesce(f.ends[g - 1], 0) + 4;
    _firsts := f.firsts[f.offs[g] + 1 : f.offs[g] + f.sizes[g]];
    _counts := f.counts[f.offs[g] + 1 : f.offs[g] + f.sizes[g]];
    select * into l from tusk.lease x where x.token = f.tokens[g] and x.lane = f.lanes[g] and x.ctid = any(_locked);
    continue when not found or exists (select from tusk.finished f where f.token = l.token);
    _places := case when l.counts is null and _counts is null then array(
      select array_position(l.firsts, u.first) from unnest(_firsts) with ordinality u(first, no) order by u.no)
    else array(
      select r.upto - r.count + 1 + tusk_fn.ids_between(r.first, u.first)
      from (
        select y.first, coalesce(y.count, 1) as count, y.no, tusk_fn.block_of(y.first) as block
        from unnest(_firsts, _counts) with ordinality y(first, count, no) offset 0) u
      left join (
        select y.first, coalesce(y.count, 1) as count, (sum(coalesce(y.count, 1)) over (order by y.no))::int as upto
        from unnest(l.firsts, l.counts) with ordinality y(first, count, no) offset 0) r
        on r.first between u.block and u.first and tusk_fn.ids_between(r.first, u.first) + u.count <= r.count
      order by u.no) end;
    continue when array_position(_places, null) is not null;
    _open := coalesce(l.open, repeat('1', coalesce((select sum(c) from unnest(l.counts) c),
      cardinality(l.firsts))::int)::varbit);
    for i in 1 .. cardinality(_places) loop
      _many := coalesce(_counts[i], 1);
      _open := case when substring(_open from _places[i] for _many) = repeat('1', _many)::varbit
        then overlay(_open placing repeat('0', _many)::varbit from _places[i]) end;
      exit when _open is null;
    end loop;
    _all[g] := _open;
  end loop;
  return _all;
end $$;

-- Judges the groups that open_parts left, and returns their tasks that cannot be finished: those that are no longer
-- open in their lease, and those that an open transaction is about to finish. The locks come first. What is open is
-- read afterwards, in a statement of its own, which sees every transaction that committed before its task was locked. A
-- lease may have thousands of tasks, so it is unpacked once and not in a loop.
-- In the model (docs/design/model.md): FinishTry, FinishOpen.
create function tusk_fn.judge_parts(f tusk_fn.flush, _part int[], _open varbit[], _locked tid[])
returns table (token uuid, id uuid, held boolean) language plpgsql set enable_nestloop = off set jit = off as $$
#variable_conflict use_column
declare
  _ids  uuid[];
  _held uuid[];
  _left uuid[];
  _many int := 0; -- tasks that have to be locked one by one
  g     int;
begin
  foreach g in array _part loop
    continue when _open[g] is not null;
    _ids := tusk_fn.group_of(f, g); _held := '{}';
    if not exists (select from tusk.lease x where x.token = f.tokens[g] and x.lane = f.lanes[g]
      and x.ctid = any(_locked)) then
      _many := _many + cardinality(_ids);
      if _many > 1000 then -- the server's lock table is limited, and all sessions share it
        raise exception 'too many attempts to lock one by one' using errcode = 'lock_not_available';
      end if;
      _held := array(select u.id from unnest(_ids) u(id) where not tusk_fn.try_finish(f.tokens[g], u.id));
    end if;
    _left := tusk_fn.open_in(f.tokens[g], f.lanes[g]);
    return query
    select f.tokens[g], u.id, false from unnest(_ids) u(id) left join unnest(_left) o(id) on o.id = u.id
      where o.id is null;
    return query
    select f.tokens[g], u.id, true from unnest(_held) u(id) join unnest(_left) o(id) on o.id = u.id;
  end loop;
end $$;

-- Closes the tasks that ended in leases of which only a part did.
create function tusk_fn.close_parts(f tusk_fn.flush, _part int[], _open varbit[], _locked tid[]) returns void
language plpgsql as $$
declare
  g int;
begin
  foreach g in array _part loop
    if _open[g] is null then
      perform tusk_fn.close(f.tokens[g], f.lanes[g], tusk_fn.group_of(f, g), _locked);
    elsif bit_count(_open[g]) = 0 then
      delete from tusk.lease x where x.token = f.tokens[g] and x.lane = f.lanes[g];
    else
      update tusk.lease x set open = _open[g] where x.token = f.tokens[g] and x.lane = f.lanes[g];
    end if;
  end loop;
end $$;

-- The tasks that are open in a lease, in the order of their places.
create function tusk_fn.open_in(_token uuid, _lane bigint) returns uuid[] language plpgsql as $$
#variable_conflict use_column
declare
  l         tusk.lease;
  _finished uuid[];
begin
  select * into l from tusk.lease x where x.token = _token and x.lane = _lane;
  _finished := array(select f.id from tusk.finished f where f.token = _token);
  return array(
    select u.id from tusk_fn.ids_of(l.firsts, l.counts) u
    where (l.open is null or get_bit(l.open, u.place::int - 1) = 1) and u.id <> all(_finished)
    order by u.place);
end $$;

-- The lock for finishing a task of a lease that is only shared.
create function tusk_fn.try_finish(_token uuid, _id uuid) returns boolean language sql volatile as $$
  select pg_try_advisory_xact_lock(hashtextextended(_token::text || _id::text, 0))
$$;

-- Closes some tasks of a lease, and deletes the lease with the last task. JIT is off because a disabled plan that is
-- used anyway, like the plan of ids_of, counts as expensive enough to be compiled, which takes up to a second.
create function tusk_fn.close(_token uuid, _lane bigint, _ids uuid[], _locked tid[]) returns void
language plpgsql set enable_nestloop = off set jit = off as $$
#variable_conflict use_column
declare
  l     record;
  _open uuid[] := tusk_fn.open_in(_token, _lane);
  _mask varbit;
begin
  select x.ctid as at, x.firsts, x.counts into l from tusk.lease x where x.token = _token and x.lane = _lane;
  select string_agg(case when o.id is not null and s.id is null then '1' else '0' end, '' order by u.place)::varbit
  into _mask
  from tusk_fn.ids_of(l.firsts, l.counts) u
  left join unnest(_open) o(id) on o.id = u.id
  left join unnest(_ids) s(id) on s.id = u.id;
  if bit_count(_mask) = 0 and l.at = any(_locked) then
    delete from tusk.lease x where x.ctid = l.at;
  else
    update tusk.lease x set open = _mask where x.ctid = l.at;
  end if;
  delete from tusk.finished f
  using tusk_fn.ids_of(l.firsts, l.counts) u
  where f.token = _token and f.id = u.id and get_bit(_mask, u.place::int - 1) = 0;
end $$;
