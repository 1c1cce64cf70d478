-- Returns a snapshot. No open transaction takes a task for unfinished whose end is visible in it. A transaction that
-- took a task for unfinished had drawn its xid before the task ended. So tasks whose end is visible now have ended for
-- everybody once all transactions up to an xid drawn now have ended.
create function tusk_fn.over() returns pg_snapshot language plpgsql set jit = off as $$
declare
  _here pg_snapshot := pg_current_snapshot();
  _mine xid8 := pg_current_xact_id();
  g     tusk.grace;
begin
  select * into g from tusk.grace;
  if pg_snapshot_xmin(pg_current_snapshot()) >= _mine then -- nobody else writes
    return _here;
  elsif pg_snapshot_xmin(pg_current_snapshot()) >= g.upto then
    update tusk.grace set over = g.next, next = _here, upto = _mine;
    return g.next;
  end if;
  return g.over;
end $$;

-- Whether a task that ended in a transaction may be deleted. An xid in the future belongs to another server, from
-- before a rebase.
create function tusk_fn.may_go(_xid xid8, _over pg_snapshot) returns boolean language sql stable as $$
  select pg_visible_in_snapshot(_xid, _over) or _xid >= pg_snapshot_xmax(pg_current_snapshot())
$$;

-- Deletes the attempts, notes and needs of tasks, but not the tasks themselves.
create function tusk_fn.forget_tasks(_ids uuid[]) returns void language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
begin
  delete from tusk.attempt x where x.id = any(_ids);
  delete from tusk.note x where x.id = any(_ids);
  if pg_relation_size('tusk.need') > 0 then
    delete from tusk.need x where x.child = any(_ids);
  end if;
end $$;
