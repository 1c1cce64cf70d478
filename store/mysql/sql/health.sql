-- name: health
select :now, concat(if(version() like '%MariaDB%', 'MariaDB ', 'MySQL '), version()), @@hostname, @@datadir,
  @@max_connections, l.id, l.term, l.expires_at, l.version,
  (select coalesce(sum(data_length + index_length), 0) from information_schema.tables where table_schema = database()
    and table_name like 'tusk|_%' escape '|'),
  (select count(*) from information_schema.partitions
   where table_schema = database() and table_name like 'tusk|_%' escape '|' and partition_name is not null)
from tusk_leader l
where l.one = 1

-- name: health.purge
select count from information_schema.innodb_metrics where name = 'trx_rseg_history_len'

-- name: health.open
select t.trx_mysql_thread_id, greatest(timestampdiff(second, t.trx_started, now()), 0), lower(t.trx_state),
  coalesce(p.user, 'unknown')
from information_schema.innodb_trx t
left join information_schema.processlist p on p.id = t.trx_mysql_thread_id
where t.trx_mysql_thread_id not in (0, connection_id())
order by t.trx_started
limit 1
