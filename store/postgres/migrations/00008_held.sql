-- up
set local lock_timeout = '5s';

-- The turns that tasks were granted and gave back, one row for many tasks. No row is updated: each grant and each flush
-- adds a row, and the leader sums the rows up. seq increases from one row about a task to the next, and the latest row
-- decides.
create table tusk.held (
  xid        xid8        not null default pg_current_xact_id(),
  seq        bigint      not null generated always as identity,
  seen       pg_snapshot,                    -- set in a sum: rows visible in it are summed up and deleted
  back       boolean     not null default false,
  ids        uuid[]      not null,
  queues     bigint[],                       -- this and the following columns: only for turns that were granted
  tenants    text[] collate "C",
  partitions text[] collate "C",
  primary key (xid, seq)
);
alter table tusk.held set (toast_tuple_target = 8160);
alter table tusk.held alter ids set storage external;
create index held_sum on tusk.held (seq) where seen is not null;

lock table tusk.turn in access exclusive mode;
insert into tusk.held (seen, ids, queues, tenants, partitions)
select '1:1:', coalesce(array_agg(t.id), '{}'), array_agg(t.queue), array_agg(t.tenant), array_agg(t.partition)
from tusk.turn t;
drop table tusk.turn;

-- The latest sum and the rows that came after it. Late rows are found by their xids, which were in progress when the
-- sum was made.
create view tusk.held_row as
select h.*
from (select s.seq, s.xid, s.seen from tusk.held s where s.seen is not null order by s.seq desc limit 1) s
cross join lateral (
  select h.* from tusk.held h where h.xid = s.xid and h.seq = s.seq
  union all
  select h.* from tusk.held h where h.xid >= pg_snapshot_xmax(s.seen) and h.seen is null
  union all
  select h.* from pg_snapshot_xip(s.seen) x join tusk.held h on h.xid = x and h.seen is null) h;

-- Tasks that have their turn: it was granted, and since then they have neither ended nor been postponed.
create view tusk.turn as
select x.id, x.queue, x.tenant, x.partition
from (
  select distinct on (u.id) u.id, u.queue, u.tenant, u.partition, h.back
  from tusk.held_row h
  cross join lateral unnest(h.ids, h.queues, h.tenants, h.partitions) u(id, queue, tenant, partition)
  order by u.id, h.seen is null desc, h.seq desc) x
where not x.back;

-- Sums up which tasks have a turn. Only a transaction that has locked the row of the latest sum does so. Rows that it
-- adds later are not in the sum.
create function tusk.sum_turns() returns void language plpgsql
set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
begin
  perform 1 from tusk.held h where h.seen is not null order by h.seq desc limit 1 for update skip locked;
  if not found then
    return;
  end if;
  with s as materialized (select pg_current_snapshot() as now, pg_current_xact_id() as own),
  added as (
    insert into tusk.held (seen, ids, queues, tenants, partitions)
    select (
        select case when s.own >= pg_snapshot_xmax(s.now) then s.now
          else format('%s:%s:%s', least(pg_snapshot_xmin(s.now), s.own), pg_snapshot_xmax(s.now), (
            select string_agg(u.xid::text, ',' order by u.xid)
            from (select pg_snapshot_xip(s.now) union select s.own) u(xid)))::pg_snapshot end
        from s),
      coalesce(array_agg(t.id), '{}'), array_agg(t.queue), array_agg(t.tenant), array_agg(t.partition)
    from tusk.turn t)
  delete from tusk.held h using (select x.xid, x.seq from tusk.held_row x offset 0) x
  where h.xid = x.xid and h.seq = x.seq;
end $$;

-- Programs of the previous release write to the view, task by task. While one of them is the leader, this trigger sums
-- the rows up.
create function tusk.turn_changed() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  _seq bigint;
begin
  if tg_op = 'INSERT' then
    insert into tusk.held (ids, queues, tenants, partitions)
    values (array[new.id], array[new.queue], array[new.tenant], array[new.partition])
    returning seq into _seq;
    if _seq % 256 = 0 then
      perform tusk.sum_turns();
    end if;
    return new;
  end if;
  insert into tusk.held (back, ids) values (true, array[old.id]);
  return old;
end $$;
create trigger turn_changed instead of insert or delete on tusk.turn for each row execute function tusk.turn_changed();

-- down
set local lock_timeout = '5s';
lock table tusk.held in access exclusive mode;
create table tusk.turn_again (
  id        uuid   not null,
  queue     bigint not null,
  tenant    text collate "C" not null,
  partition text collate "C" not null,
  constraint turn_pkey primary key (id)
);
insert into tusk.turn_again select * from tusk.turn;
drop view tusk.turn, tusk.held_row;
drop function tusk.turn_changed, tusk.sum_turns;
drop table tusk.held;
alter table tusk.turn_again rename to turn;
