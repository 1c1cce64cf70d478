-- name: at_home
-- Whether the transaction ids in the log belong to this server. They do not if the server is a different one, or if
-- some are in the future, as in a dump that is restored into the server from which this one was cloned. The id of the
-- asking transaction counts as the future for its own snapshot. The second
-- column is whether this role may read the sequence beside. Some versions of PostgreSQL tell a role without this right
-- that the sequence has no value.
select exists (select from tusk.server s, pg_control_system() c where s.system_identifier = c.system_identifier)
  and not exists (
    select from tusk.lane_position p
    where pg_snapshot_xmax(p.done) > pg_snapshot_xmax(pg_current_snapshot())
      or pg_snapshot_xmax(p.win) > pg_snapshot_xmax(pg_current_snapshot()))
  and not exists (
    select from tusk.lane l
    where exists (
      select from tusk.log t
      where t.lane = l.id and t.xid >= pg_snapshot_xmax(pg_current_snapshot())
        and t.xid is distinct from pg_current_xact_id_if_assigned())),
  pg_catalog.has_sequence_privilege('tusk.beside', 'select, usage')

-- name: rebase
-- A database was restored into another server, where the log's transaction ids have no meaning. Tasks that had ended
-- get a transaction id before all others. Tasks that were running or available are written again. Nobody may work
-- meanwhile.
set local search_path = pg_catalog, pg_temp;
set local jit = off;
lock table tusk.log, tusk.lease, tusk.lane_position, tusk.outcome in access exclusive mode;
create temporary table rebase on commit drop as select * from tusk_fn.unfinished;
delete from tusk.log t using rebase o where t.packed is null and t.id = o.id and t.xid = o.xid and t.n = o.n;

-- name: rebase_tables
select i.inhrelid::regclass::text from pg_inherits i where i.inhparent = 'tusk.log'::regclass::oid

-- name: rebase_detach
alter table tusk.log detach partition {table}

-- name: rebase_ended
insert into tusk.log (xid, lane, n, id, enqueued_at, attempt, crashes, kind, args, run_at, expires_at, claimed_at,
  tenant, key, tags, settings, failure, workflow, turn, partition, packed)
select '3', lane, n, id, enqueued_at, attempt, crashes, kind, args, run_at, expires_at, claimed_at, tenant, key, tags,
  settings, failure, workflow, turn, partition, packed
from {table};
drop table {table};

-- name: rebase_positions
insert into tusk.stat (at, stats)
select o.finished_at, o.stats from tusk.outcome o where o.stats is not null
  and (o.xid >= (select e.upto from tusk.stat_end e)
    or o.xid = any(array(select unnest(e.late) from tusk.stat_end e)));
update tusk.stat_end e set upto = '0', late = '{}';
update tusk.outcome o -- in the same order, before all new ones, because pruning stops at the first young one
set xid = y.xid::text::xid8, lo = '3', node = 7, stats = null
from (
  select x.ctid as at, 4 + (row_number() over (order by x.xid) - 1) * (h.here - 4) / count(*) over () as xid
  from tusk.outcome x cross join (select pg_current_xact_id()::text::bigint as here) h) y
where o.ctid = y.at;
update tusk.dead d set xid = '3' where d.xid >= pg_current_xact_id();
update tusk.attempt a set xid = '3' where a.xid >= pg_current_xact_id();
delete from tusk.lease;
delete from tusk.finished;
delete from tusk.stop;
delete from tusk.lane_position;
delete from tusk.lane_tally;
insert into tusk.lane_position (lane, no, done, win, at_xid, at_n, claimed)
select l.id, 1, '4:4:', null, '0', 0, 0 from (select distinct x.id from tusk.lane x) l;
insert into tusk.lane_tally (lane, seen, added) select l.id, '4:4:', 0 from (select distinct x.id from tusk.lane x) l;

-- name: rebase_unfinished
insert into tusk.log (lane, id, enqueued_at, attempt, crashes, kind, args, run_at, expires_at, claimed_at, tenant,
  key, tags, settings, failure, workflow, turn, partition)
select o.lane, o.id, o.enqueued_at, o.attempt, o.crashes, o.kind, o.args, o.run_at, o.expires_at, o.claimed_at,
  o.tenant, o.key, o.tags, o.settings, o.failure, o.workflow, o.turn, o.partition
from {table} o order by o.xid, o.n

-- name: rebase_archive
-- The database may be a copy, so it no longer owns the archive. Package archive can give it back (Keep).
delete from tusk.record r where r.kind = 'archive' and r.name = 'owner_before_rebase'
  and exists (select from tusk.record o where o.kind = 'archive' and o.name = 'owner');
update tusk.record r set name = 'owner_before_rebase', version = nextval('tusk.record_version'),
  updated_at = clock_timestamp()
where r.kind = 'archive' and r.name = 'owner';

-- name: rebase_rest
-- A logical copy has the rows without the values of sequences. Places in packs need task_n to be a multiple of 256.
select tusk.sum_turns();
select case when exists (select from tusk.open_need) then nextval('tusk.beside') end,
  setval('tusk.record_version', greatest(nextval('tusk.record_version'), (select max(r.version) from tusk.record r))),
  setval('tusk.doubt_n', greatest(nextval('tusk.doubt_n'), (select max(d.n) from tusk.doubt d))),
  setval('tusk.task_n', greatest(nextval('tusk.task_n'), (select max(w.n) from tusk.unready w) & -256)),
  setval(pg_get_serial_sequence('tusk.attempt', 'n'), (select max(a.n) from tusk.attempt a));
delete from tusk.catalogue;
update tusk.catalogue_end e set upto = '0', added = 0;
update tusk.grace g set over = '1:1:', next = '1:1:', upto = '0';
update tusk.worker w set dead = true;
update tusk.leader l set id = null, expires_at = '-infinity';
update tusk.server s set system_identifier = (select c.system_identifier from pg_control_system() c);

-- name: unfinished
select count(*) from tusk_fn.unfinished

-- name: oldest_program
select oldest_program from tusk.server

-- name: analyze
-- A restored database has no statistics, and the planner needs them for the statements that rebase it.
do $$
declare
  _name text;
begin
  set local search_path = pg_catalog, pg_temp;
  for _name in
    select c.oid::regclass::text from pg_catalog.pg_class c
    where c.relkind in ('r', 'p')
      and c.relnamespace = (select l.relnamespace from pg_catalog.pg_class l where l.oid = 'tusk.log'::regclass)
  loop
    execute 'analyze ' || _name;
  end loop;
end $$
