-- name: health
-- Reads only figures that the server and Tusk maintain in any case. $1 is the schema. An open or prepared transaction
-- anywhere on the server delays the cleanup of dead rows. The tables of lines are truncated, so their dead rows count
-- only if there are so many that vacuum should have removed them.
with open as (
  select a.xact_start as since,
    pg_catalog.format('pid %s, user %s, %s, %s', a.pid, a.usename,
      coalesce(nullif(a.application_name, ''), 'without a name'), a.state) as by,
    pg_catalog.format('select pg_terminate_backend(%s)', a.pid) as ending
  from pg_stat_activity a
  where a.xact_start is not null and a.backend_type = 'client backend' and a.pid <> pg_backend_pid()
  union all
  select p.prepared, pg_catalog.format('prepared transaction %s of user %s', p.gid, p.owner),
    pg_catalog.format('rollback prepared %L', p.gid)
  from pg_prepared_xacts p
  order by since
  limit 1),
tables as (
  select coalesce(sum(t.n_dead_tup) filter (
      where t.relname !~ '^line_[12]$' or t.n_dead_tup > 200000), 0)::bigint as dead,
    coalesce(sum(t.n_live_tup), 0)::bigint as live,
    coalesce(sum(pg_catalog.pg_total_relation_size(t.relid)), 0)::bigint as bytes,
    greatest(coalesce(sum(t.n_live_tup) filter (where t.relname = 'lane_position'), 0)
      - coalesce(sum(t.n_live_tup) filter (where t.relname = 'lane_tally'), 0), 0)::bigint as behind
  from pg_stat_user_tables t
  where t.schemaname = $1)
select clock_timestamp(), current_setting('server_version'), pg_backend_pid(),
  case when pg_catalog.pg_has_role(current_user, 'pg_read_all_settings', 'usage')
    then current_setting('data_directory') else '' end,
  (select count(*) from pg_stat_activity a where a.backend_type = 'client backend'),
  current_setting('max_connections')::bigint, l.term, l.id is not null and l.expires_at > clock_timestamp(),
  nullif(l.renewed_at, '-infinity'), coalesce(extract(epoch from clock_timestamp() - o.since), 0)::float8,
  coalesce(o.by, ''), coalesce(o.ending, ''), t.dead, t.live, t.bytes, (select count(*) from tusk.segment), t.behind,
  (select f.finished_at from tusk.outcome f order by f.xid limit 1)
from tusk.leader l
cross join tables t
left join open o on true
