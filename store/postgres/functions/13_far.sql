-- A queue may have many ledgers. Then a task may need one that lives in another ledger. Here that one is known only by
-- its row in far, which has what its own ledger has told.

-- Stores what was heard of tasks in other ledgers. Needs for those that have ended, or are gone, are in doubt from now
-- on, and the tasks that have such needs are returned. What nobody has needed or asked for in an hour is forgotten.
create function tusk_fn.hear(_ids uuid[], _states smallint[]) returns setof uuid language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
begin
  perform tusk_fn.need_read_committed();
  insert into tusk.far (id, state)
  select distinct on (x.id) x.id, x.state from unnest(_ids, _states) x(id, state) order by x.id, x.state
  on conflict (id) do update set state = excluded.state, heard_at = excluded.heard_at;
  delete from tusk.far f
  where f.ctid = any(array(
    select x.ctid from tusk.far x
    where x.heard_at < clock_timestamp() - interval '1 hour' and x.id <> all(_ids)
      and not exists (select from tusk.open_need o where o.parent = x.id)
    order by x.heard_at limit 100 for update skip locked));
  perform tusk_fn.doubt_children(
    array(select x.id from unnest(_ids, _states) x(id, state) where x.state <> 9),
    array(select x.state from unnest(_ids, _states) x(id, state) where x.state <> 9));
  return query
  select distinct o.child from unnest(_ids, _states) x(id, state)
  cross join lateral (select y.child from tusk.open_need y where y.parent = x.id offset 0) o
  where x.state <> 9;
end $$;

-- The tasks of other ledgers that tasks here need, from an id on. They include those that were announced in the last
-- hour, because the transaction that will need them may not have committed yet.
create function tusk_fn.needed(_after uuid, _limit int) returns table (id uuid, state smallint, announced boolean)
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
#variable_conflict use_column
begin
  if pg_relation_size('tusk.far') = 0 then
    return;
  end if;
  return query
  select f.id, f.state, not o.needed
  from tusk.far f
  cross join lateral (select exists (select from tusk.open_need x where x.parent = f.id) as needed) o
  where f.id > _after
    and (o.needed or f.state = 9 and f.heard_at > clock_timestamp() - interval '1 hour')
  order by f.id limit _limit;
end $$;

-- Whether tasks need others in another ledger, or letters wait in a lane.
create function tusk_fn.needs_others(_letters bigint) returns boolean language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
begin
  return exists (select from tusk_fn.needed('00000000-0000-0000-0000-000000000000', 1))
    or exists (select from tusk.waiting w where w.lane = _letters and w.state = 1 and w.line is null);
end $$;

-- Records the tasks that another ledger sends, and returns those that are new here. A server that has sent some and
-- died before it knew may be back within a week, and sends them again.
create function tusk_fn.deliver(_ids uuid[]) returns setof uuid language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
begin
  delete from tusk.delivered d
  where d.ctid = any(array(
    select x.ctid from tusk.delivered x where x.at < clock_timestamp() - interval '7 days'
    order by x.at limit 1000 for update skip locked));
  return query insert into tusk.delivered (id) select u.id from unnest(_ids) u(id) order by u.id
    on conflict do nothing returning delivered.id;
end $$;
