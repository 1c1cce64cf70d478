-- Deletes finished tasks whose retention is over. Without the row of their flush, the rows of completed tasks in the
-- log have no meaning, and are dropped with their segment.

-- Deletes flushes that had the given numbers of tasks, and in all up to _limit tasks: only the first tasks of the last
-- flush may be deleted. Returns the places of flushes that have fewer tasks by now or are gone, and of flushes that are
-- not deleted because somebody holds them or one of their keys, or because a task that needs one of their tasks has not
-- been told of its end. Once a task is deleted, nobody knows how it ended.
create function tusk_fn.release_flushes(_xids bigint[], _lanes bigint[], _tokens uuid[], _finished timestamptz[],
  _tasks bigint[], _limit int)
returns table (place int, held boolean)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
  _needed boolean := pg_relation_size('tusk.open_need') > 0;
  _beside boolean := _needed or pg_relation_size('tusk.attempt') > 0 or pg_relation_size('tusk.note') > 0
    or pg_relation_size('tusk.need') > 0;
  _found  bigint;
  _many   int;
  _ids    uuid[];
  _rest   uuid[];
  _named  uuid[];
  _keys   text[];
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
      _many := coalesce((select sum(c) from unnest(o.counts) c), cardinality(o.firsts));
      _found := _found + _many;
      _rest := '{}';
      if _beside or o.keyed > 0 or _many > _limit then
        _ids := array(select u.id from tusk_fn.ids_of(o.firsts, o.counts) u order by u.place);
        _rest := _ids[_limit + 1 :];
        _ids := _ids[: _limit];
        select array_agg(t.id), array_agg(t.key) into _named, _keys
        from (
          select distinct t.id, tusk_fn.tenant_key(t.tenant, t.key) as key from tusk.log t
          where o.keyed > 0 and t.id = any(_ids) and t.packed is null and t.lane = o.lane and t.key is not null) t;
        if _needed and cardinality(tusk_fn.children_of(_ids)) > 0
          or _keys is not null and tusk_fn.try_keys(array(select o.lane >> 16 from unnest(_keys)), _keys) <> '{}' then
          return query select i, true;
          continue;
        end if;
        perform tusk_fn.forget_key(o.lane >> 16, k.key, k.id) from unnest(_named, _keys) k(id, key);
        perform tusk_fn.forget_tasks(_ids);
      end if;
      _limit := _limit - _many + cardinality(_rest);
      if _rest <> '{}' then
        update tusk.outcome x set firsts = _rest, counts = null, ago = x.ago[_many - cardinality(_rest) + 1 :]
        where x.ctid = o.at;
      else
        with gone as (delete from tusk.outcome x where x.ctid = o.at returning x.xid, x.finished_at, x.stats)
        insert into tusk.stat (at, stats)
        select g.finished_at, g.stats from gone g -- unless they are summed up already
        where g.stats is not null and (g.xid >= _upto or g.xid = any(_late));
      end if;
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
