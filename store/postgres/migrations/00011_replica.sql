-- up
set local lock_timeout = '5s';

-- If all tables are published, PostgreSQL refuses to update and delete rows of tables that have neither a primary key
-- nor another replica identity. The setting costs nothing if wal_level is below logical. The log's segments do not
-- inherit it.
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
