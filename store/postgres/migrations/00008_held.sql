-- up
set local lock_timeout = '5s';

-- The turns that tasks were given and that they gave back, a row for many. Nothing is updated: a grant and a flush add
-- a row each, and the leader sums them up. seq grows from one row of a task to its next: the latest one tells.
create table tusk.held (
  xid        xid8        not null default pg_current_xact_id(),
  seq        bigint      not null generated always as identity,
  seen       pg_snapshot,                    -- of a sum: the rows visible in it are summed up, and gone
  back       boolean     not null default false,
  ids        uuid[]      not null,
  queues     bigint[],                       -- and so on: of those that were given
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

-- The latest sum, and the rows that came after it: late ones are found by their xids, which were in flight.
create view tusk.held_row as
select h.*
from (select s.seq, s.xid, s.seen from tusk.held s where s.seen is not null order by s.seq desc limit 1) s
cross join lateral (
  select h.* from tusk.held h where h.xid = s.xid and h.seq = s.seq
  union all
  select h.* from tusk.held h where h.xid >= pg_snapshot_xmax(s.seen) and h.seen is null
  union all
  select h.* from pg_snapshot_xip(s.seen) x join tusk.held h on h.xid = x and h.seen is null) h;

-- Tasks that have their turn: granted, and neither ended nor put off since.
create view tusk.turn as
select x.id, x.queue, x.tenant, x.partition
from (
  select distinct on (u.id) u.id, u.queue, u.tenant, u.partition, h.back
  from tusk.held_row h
  cross join lateral unnest(h.ids, h.queues, h.tenants, h.partitions) u(id, queue, tenant, partition)
  order by u.id, h.seen is null desc, h.seq desc) x
where not x.back;

-- Programs of the release before write the view, task by task.
create function tusk.turn_changed() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if tg_op = 'INSERT' then
    insert into tusk.held (ids, queues, tenants, partitions)
    values (array[new.id], array[new.queue], array[new.tenant], array[new.partition]);
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
drop function tusk.turn_changed;
drop table tusk.held;
alter table tusk.turn_again rename to turn;
