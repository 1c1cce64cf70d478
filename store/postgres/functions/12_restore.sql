-- Restores finished tasks from an archive as they were, except that they end now. _args, _settings and _outputs are in
-- the order of their places. Returns the ids of tasks that exist; those are left alone.
--
-- No transaction has ended these tasks. Their xid is made of the time and lies beyond every real one, so that readers
-- of ends are not told of them.
create function tusk_fn.restore(_tasks json, _args bytea[], _settings bytea[], _outputs bytea[]) returns uuid[]
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  _now   timestamptz := clock_timestamp();
  _xid   xid8 := (4611686018427387904 + (extract(epoch from _now) * 1000000)::bigint)::text::xid8;
  _exist uuid[];
begin
  perform tusk_fn.need_read_committed();
  _exist := array(
    select x.id from json_to_recordset(_tasks) x(id uuid)
    where exists (select from tusk_fn.state_of(x.id)));
  with t as materialized (
    select x.* from json_to_recordset(_tasks) x(place int, id uuid, state smallint, lane bigint, run_at timestamptz,
      enqueued_at timestamptz, attempt int, crashes int, kind text, expires_at timestamptz, claimed_at timestamptz,
      tenant text, key text, tags text[], failure text, reason text, workflow uuid, turn boolean, partition text,
      progress jsonb, logs jsonb, changed_at timestamptz, changed text, attempts json, needs json)
    where x.id <> all(_exist)),
  put as (
    insert into tusk.dead (id, state, lane, run_at, enqueued_at, attempt, crashes, kind, args, expires_at, claimed_at,
      tenant, key, tags, settings, failure, reason, finished_at, workflow, turn, partition, xid)
    select t.id, t.state, t.lane, t.run_at, t.enqueued_at, t.attempt, t.crashes, t.kind, _args[t.place], t.expires_at,
      t.claimed_at, t.tenant, t.key, t.tags, _settings[t.place], t.failure, t.reason, _now, t.workflow, t.turn,
      t.partition, _xid
    from t),
  tried as (
    insert into tusk.attempt (id, number, worker, started_at, ended_at, state, error, trace, fingerprint, xid)
    select t.id, a.number, a.worker, a.started_at, a.ended_at, a.state, a.error, a.trace, a.fingerprint, '0'
    from t
    cross join lateral json_to_recordset(t.attempts) a(n int, number int, worker uuid, started_at timestamptz,
      ended_at timestamptz, state smallint, error text, trace text, fingerprint text)
    order by t.place, a.n),
  noted as (
    insert into tusk.note (id, progress, output, logs, changed_at, changed)
    select t.id, t.progress, _outputs[t.place], t.logs, t.changed_at, t.changed
    from t where t.progress is not null or _outputs[t.place] is not null or t.logs is not null
      or t.changed_at is not null
    on conflict (id) do update set progress = excluded.progress, output = excluded.output, logs = excluded.logs,
      changed_at = excluded.changed_at, changed = excluded.changed),
  needing as (
    insert into tusk.need (child, place, parent, policy)
    select t.id, n.place, n.parent, n.policy
    from t cross join lateral json_to_recordset(t.needs) n(place int, parent uuid, policy smallint))
  insert into tusk.key as k (queue, key, ended, tasks)
  select x.queue, x.key, (array_agg(x.id order by x.id desc))[1], count(*)
  from (select t.id, t.lane >> 16 as queue, tusk_fn.tenant_key(t.tenant, t.key) collate "C" as key from t
    where t.key is not null) x
  group by x.queue, x.key
  order by x.queue, x.key
  on conflict (queue, key) do update set ended = coalesce(k.ended, excluded.ended), tasks = k.tasks + excluded.tasks;
  return _exist;
end $$;
