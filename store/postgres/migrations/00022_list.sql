-- up
set local lock_timeout = '5s';

-- What people look for by itself. Tasks without a key, a tenant or a failure pay
-- nothing for these; of kinds and tags, which every task would pay for, the catalogue
-- knows.
create index task_key on tusk.log (key, id) where key is not null;
create index task_tenant on tusk.log (tenant, id) where tenant is not null;
create index task_failure on tusk.log (failure, id) where failure is not null;
create index waiting_key on tusk.waiting (key, id) where key is not null;
create index waiting_tenant on tusk.waiting (tenant, id) where tenant is not null;
create index waiting_failure on tusk.waiting (failure, id) where failure is not null;
create index dead_key on tusk.dead (key, id) where key is not null;
create index dead_tenant on tusk.dead (tenant, id) where tenant is not null;
create index dead_failure on tusk.dead (failure, id) where failure is not null;

-- What ended in transactions from _from on, of _limit rows or so, and no further than the
-- oldest transaction that is still open: below it nothing is ever added. next is where to go
-- on from; without an id nothing ended. Completions are told by outcomes, ends of other
-- attempts by attempts, and the rest by dead tasks.
create function tusk.ended(_from xid8, _limit int) returns table (next text, id uuid, queue text, state smallint, at timestamptz, rescued boolean)
language plpgsql stable set jit = off as $$
#variable_conflict use_column
begin
  return query
  with edge as materialized (select pg_snapshot_xmin(pg_current_snapshot()) as upto),
  last as materialized (
    select y.xid, y.n from (
      select y.xid, row_number() over (order by y.xid) as n from (
        (select o.xid from tusk.outcome o where o.xid >= _from and o.xid < (select upto from edge) order by o.xid limit _limit)
        union all
        (select a.xid from tusk.attempt a
         where a.xid >= _from and a.xid < (select upto from edge)
           and (a.state >= 6 or a.error like 'worker ____________________________________ died')
         order by a.xid limit _limit)
        union all
        (select d.xid from tusk.dead d where d.xid >= _from and d.xid < (select upto from edge) order by d.xid limit _limit)) y
      order by y.xid
      limit _limit) y
    order by y.n desc
    limit 1),
  ended as (
    select o.xid, i.id, tusk.queue_of(o.lane) as queue, 6::smallint as state,
      o.finished_at - coalesce(o.ago[i.place], 0) * interval '1 ms' as at, false as rescued
    from tusk.outcome o cross join lateral tusk.ids_of(o.firsts, o.counts) i
    where o.xid >= _from and o.xid <= (select xid from last)
    union all
    select a.xid, a.id, '', a.state, a.ended_at, a.error like 'worker ____________________________________ died'
    from tusk.attempt a
    where a.xid >= _from and a.xid <= (select xid from last)
      and (a.state >= 6 or a.error like 'worker ____________________________________ died')
    union all
    select d.xid, d.id, tusk.queue_of(d.lane), d.state, d.finished_at, false
    from tusk.dead d
    where d.xid >= _from and d.xid <= (select xid from last)
      and not exists (select from tusk.attempt a where a.id = d.id and a.xid = d.xid))
  select case when l.n >= _limit then (l.xid::text::bigint + 1)::text else e.upto::text end, r.id, r.queue, r.state, r.at, r.rescued
  from edge e left join last l on true left join ended r on true
  order by r.xid, r.at;
end $$;

-- down
set local lock_timeout = '5s';
drop function tusk.ended;
drop index tusk.task_key, tusk.task_tenant, tusk.task_failure, tusk.waiting_key, tusk.waiting_tenant, tusk.waiting_failure,
  tusk.dead_key, tusk.dead_tenant, tusk.dead_failure;
