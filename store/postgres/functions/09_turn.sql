-- A task that takes turns stands in line among the waiting tasks, by queue, tenant and partition. The leader reads the
-- lines and grants turns.

-- Returns the groups that have waited longest for a turn, with their first tasks. The index is read from group to
-- group. Bitmap scans are off because the planner, when it expects few rows, would read all tasks behind a group.
create function tusk_fn.turns(_term bigint, _groups int, _heads int)
returns table (queue text, tenant text, partition text, waiting uuid[]) language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set plan_cache_mode = force_generic_plan
  set jit = off
as $$
#variable_conflict use_column
begin
  if _term <> 0 then
    perform tusk_fn.lead(_term);
    if (select count(*) from tusk.held_row) > 64 then
      perform tusk.sum_turns();
    end if;
  end if;
  return query
  with recursive head as (
    (select w.lane >> 16 as q, coalesce(w.tenant, '') as t, coalesce(w.partition, '') as p, w.lane, w.line, w.n
     from tusk.waiting w where w.line is not null
     order by w.lane >> 16, coalesce(w.tenant, ''), coalesce(w.partition, ''), w.lane, w.line, w.n limit 1)
    union all
    select x.*
    from head h
    cross join lateral (
      select w.lane >> 16 as q, coalesce(w.tenant, '') as t, coalesce(w.partition, '') as p, w.lane, w.line, w.n
      from tusk.waiting w
      where w.line is not null
        and (w.lane >> 16, coalesce(w.tenant, ''), coalesce(w.partition, ''), w.lane) > (h.q, h.t, h.p, h.lane)
      order by w.lane >> 16, coalesce(w.tenant, ''), coalesce(w.partition, ''), w.lane, w.line, w.n limit 1) x),
  first as materialized (
    select * from (select distinct on (h.q, h.t, h.p) h.q, h.t, h.p, h.line, h.n from head h
      order by h.q, h.t, h.p, h.line, h.n) f
    order by f.line, f.n limit _groups),
  named as materialized (
    select y.q, tusk_fn.queue_of(y.q << 16) as queue from (select distinct f.q from first f) y)
  select m.queue, f.t, f.p, array(
    select w.id from tusk.waiting w
    where w.line is not null and w.lane >> 16 = f.q and coalesce(w.tenant, '') = f.t
      and coalesce(w.partition, '') = f.p
    order by w.lane, w.line, w.n limit _heads)
  from first f join named m on m.q = f.q
  order by f.line, f.n;
end $$;

-- Returns the turns that were given and given back since a snapshot. If the latest sum is another one than the caller
-- knows, or the snapshot comes from a server that was lost in a failover, it returns that sum and what came after it.
-- There is always at least one row, with the sum and the snapshot of the answer.
create function tusk_fn.turns_since(_sum bigint, _seen pg_snapshot)
returns table (sum bigint, anew boolean, now pg_snapshot, place bigint, back boolean, queue text, ids uuid[],
  tenants text[], partitions text[]) language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
#variable_conflict use_column
begin
  return query
  with latest as materialized (
    select s.seq, s.xid, x.same, case when x.same then _seen else s.seen end as seen
    from tusk.held s
    cross join lateral (
      select s.seq = _sum and pg_snapshot_xmax(_seen) <= pg_snapshot_xmax(pg_current_snapshot())) x(same)
    where s.seen is not null order by s.seq desc limit 1)
  select s.seq, s.same is not true, pg_current_snapshot(), case when h.seen is null then h.seq else 0 end, h.back,
    tusk_fn.queue_of(g.queue << 16), g.ids, g.tenants, g.partitions
  from latest s
  left join lateral (
    select h.* from tusk.held h where h.xid = s.xid and h.seq = s.seq and s.same is not true
    union all
    select h.* from tusk.held h where h.xid >= pg_snapshot_xmax(s.seen) and h.seen is null
    union all
    select h.* from pg_snapshot_xip(s.seen) x join tusk.held h on h.xid = x and h.seen is null) h on true
  left join lateral (
    select u.queue, array_agg(u.id) as ids, array_agg(u.tenant) as tenants, array_agg(u.partition) as partitions
    from unnest(h.ids, h.queues, h.tenants, h.partitions) u(id, queue, tenant, partition)
    group by u.queue) g on true
  order by 4;
end $$;

-- Gives back turns.
create function tusk_fn.give_back(_ids uuid[]) returns void language plpgsql set jit = off as $$
begin
  if cardinality(_ids) > 0 then
    insert into tusk.held (back, ids) values (true, _ids);
  end if;
end $$;

-- Grants turns, in the order given, to those of the tasks that wait for one.
create function tusk_fn.grant_turns(_term bigint, _ids uuid[]) returns table (tasks int, queues text[]) language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set plan_cache_mode = force_generic_plan
  set jit = off
as $$
declare
  _mine tid[]; -- by id: a planner that expects few waiting tasks would read all of them
begin
  perform tusk_fn.need_read_committed();
  perform tusk_fn.hold_lead(_term);
  _mine := array(
    select w.ctid from tusk.waiting w where w.id = any(_ids) and w.line is not null order by w.id
      for update skip locked);
  return query
  with gone as (
    delete from tusk.waiting w where w.ctid = any(_mine) returning w.*),
  granted as (
    insert into tusk.held (ids, queues, tenants, partitions)
    select array_agg(g.id), array_agg(g.lane >> 16), array_agg(coalesce(g.tenant, '')),
      array_agg(coalesce(g.partition, ''))
    from gone g having count(*) > 0),
  added as (
    insert into tusk.log (lane, id, enqueued_at, attempt, crashes, kind, args, run_at, expires_at, claimed_at, tenant,
      key, tags, settings, failure, workflow, turn, partition)
    select g.lane, g.id, g.enqueued_at, g.attempt, g.crashes, g.kind, g.args, clock_timestamp(), g.expires_at,
      g.claimed_at, g.tenant, g.key, g.tags, g.settings, g.failure, g.workflow, g.turn, g.partition
    from (
      select g.* from gone g
      join (select u.id, min(u.place) as place from unnest(_ids) with ordinality u(id, place)
        group by u.id) u on u.id = g.id
      order by u.place) g)
  select coalesce(sum(y.tasks), 0)::int, coalesce(array_agg(distinct tusk_fn.queue_of(y.lane)), '{}')
  from (select g.lane, count(*) as tasks from gone g group by g.lane) y;
end $$;
