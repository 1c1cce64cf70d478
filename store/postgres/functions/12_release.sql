-- Deletes finished tasks whose retention is over, once an archive has them. Retentions, and the conditions under which
-- tasks may be deleted, are as in prune.

-- Deletes flushes that had the given numbers of tasks. Returns the places of flushes that have fewer tasks by now or
-- are gone, and of flushes that somebody holds, which are not deleted.
create function tusk_fn.release_flushes(_xids bigint[], _lanes bigint[], _tokens uuid[], _finished timestamptz[],
  _tasks bigint[])
returns table (place int, held boolean)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
  _beside boolean := pg_relation_size('tusk.attempt') > 0 or pg_relation_size('tusk.note') > 0
    or pg_relation_size('tusk.need') > 0;
  _found  bigint;
  _ids    uuid[];
  _upto   xid8;
  _late   xid8[];
  o       record;
begin
  perform tusk_fn.need_read_committed();
  -- Locked, so that nobody sums up statistics that are deleted meanwhile.
  select e.upto, e.late into _upto, _late from tusk.stat_end e for share;
  for i in 1 .. cardinality(_xids) loop
    _found := 0;
    for o in
      select x.ctid as at, x.lane, x.firsts, x.counts, x.keyed from tusk.outcome x
      where x.xid = _xids[i]::text::xid8 and x.lane = _lanes[i] and x.token = _tokens[i]
        and x.finished_at = _finished[i]
      for update skip locked
    loop
      _found := _found + coalesce((select sum(c) from unnest(o.counts) c), cardinality(o.firsts));
      if _beside or o.keyed > 0 then
        _ids := array(select u.id from tusk_fn.ids_of(o.firsts, o.counts) u);
        if o.keyed > 0 and not tusk_fn.forget_keys_of(o.lane, _ids) then
          return query select i, true;
          continue;
        end if;
        perform tusk_fn.forget_tasks(_ids);
      end if;
      perform tusk_fn.drop_flush(o.at, _upto, _late);
    end loop;
    if _found < _tasks[i] then
      return query select i, exists (
        select from tusk.outcome x
        where x.xid = _xids[i]::text::xid8 and x.lane = _lanes[i] and x.token = _tokens[i]
          and x.finished_at = _finished[i]);
    end if;
  end loop;
end $$;

-- Deletes dead tasks that ended in the given transactions. Returns the ids of tasks that are not deleted: those that
-- somebody holds, and completed ones whose end a task that needs them has not been told, because it was stored while
-- the archive looked for due tasks.
create function tusk_fn.release_dead(_ids uuid[], _xids bigint[]) returns uuid[]
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
  _gone uuid[] := '{}';
  d     record;
begin
  perform tusk_fn.need_read_committed();
  for d in
    select x.* from (select * from unnest(_ids, _xids) u(id, xid) order by u.id) u
    cross join lateral (
      select x.id, x.tenant, x.key, x.lane from tusk.dead x where x.id = u.id and x.xid = u.xid::text::xid8
        and not (x.state = 6 and exists (select from tusk.open_need n where n.parent = x.id))
      for update skip locked) x
  loop
    if d.key is not null then
      continue when tusk_fn.try_keys(array[d.lane >> 16], array[tusk_fn.tenant_key(d.tenant, d.key)]) <> '{}';
      perform tusk_fn.forget_key(d.lane >> 16, tusk_fn.tenant_key(d.tenant, d.key), d.id);
    end if;
    _gone := _gone || d.id;
    delete from tusk.dead x where x.id = d.id;
  end loop;
  perform tusk_fn.forget_tasks(_gone);
  perform tusk_fn.doubt_children(_gone, array_fill(0::smallint, array[cardinality(_gone)])); -- nobody can retry these
  return array(
    select u.id from unnest(_ids, _xids) u(id, xid)
    cross join lateral (select from tusk.dead x where x.id = u.id and x.xid = u.xid::text::xid8 offset 0) x);
end $$;
