-- up
set local lock_timeout = '5s';

-- A publication of all tables refuses changes of tables without a primary key, unless they say how a row is found again.
-- It costs nothing where nothing is published (wal_level below logical). Segments of the log do not inherit it.
alter table tusk.log replica identity full;
alter table tusk.lane replica identity full;
alter table tusk.outcome replica identity full;
alter table tusk.stat replica identity full;
alter table tusk.attempt replica identity full;
alter table tusk.catalogue replica identity full;
do $$
declare
  _segment regclass;
begin
  for _segment in select t.relid from pg_partition_tree('tusk.log') t where t.level > 0 loop
    execute format('alter table %s replica identity full', _segment);
  end loop;
end $$;

-- down
set local lock_timeout = '5s';
alter table tusk.log replica identity default;
alter table tusk.lane replica identity default;
alter table tusk.outcome replica identity default;
alter table tusk.stat replica identity default;
alter table tusk.attempt replica identity default;
alter table tusk.catalogue replica identity default;
do $$
declare
  _segment regclass;
begin
  for _segment in select t.relid from pg_partition_tree('tusk.log') t where t.level > 0 loop
    execute format('alter table %s replica identity default', _segment);
  end loop;
end $$;
