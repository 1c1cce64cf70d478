-- Arguments that statements pass to functions, of the types in functions/00_rows.sql, and parts of statements. The
-- parameters are arrays, one for each column, except those of odd_end, for the single end in a user's transaction, and
-- of take_key.

-- name: flush
row(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)::tusk_fn.flush

-- name: odd_end
row(null, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)::tusk_fn.odd_end

-- name: odd_ends
array(select row(x.*)::tusk_fn.odd_end from unnest(?::int[], ?::uuid[], ?::smallint[], ?::bigint[], ?::int[], ?::int[],
    ?::text[], ?::text[], ?::text[], ?::text[], ?::bigint[]) x)

-- name: end_keys
array(select row(x.*)::tusk_fn.end_key from unnest(?::bigint[], ?::text[], ?::uuid[]) x)

-- name: new_tasks
array(select row(x.*)::tusk_fn.new_task from unnest(?::bigint[], ?::uuid[], ?::text[], ?::bytea[], ?::text[], ?::text[],
    ?::bytea[], ?::timestamptz[], ?::bigint[], ?::timestamptz[], ?::bigint[], ?::text[], ?::smallint[],
    ?::timestamptz[], ?::uuid[], ?::boolean[], ?::text[]) x)

-- name: new_needs
array(select row(x.*)::tusk_fn.new_need from unnest(?::int[], ?::uuid[], ?::smallint[]) x)

-- name: extras
row(?, array(select row(x.*)::tusk_fn.new_need from unnest(?::int[], ?::uuid[], ?::smallint[]) x), ?, ?,
    array(select row(x.*)::tusk_fn.goer from unnest(?::uuid[], ?::uuid[], ?::bigint[], ?::text[]) x))::tusk_fn.extras

-- name: turns_back
-- Turns are given back only if all ends were accepted.
back as (
  insert into tusk.held (back, ids)
  select true, ?::uuid[] where not exists (select from f where id is not null or held is not null))
select token, id, held, queue from f

-- name: led
-- Has a row if a term is running, and keeps the term from ending before the transaction does.
lead as materialized (
  select from tusk.leader l where l.term = ?::bigint and l.id is not null and l.expires_at > clock_timestamp()
    for key share)

-- name: is_due
-- Whether waiting task x is due, and its latest attempt was not inserted into the log after this transaction began.
exists (select from lead) and x.state <> 2 and x.run_at <= statement_timestamp()
      and (x.claimed_at is null or not exists (select from tusk_fn.rows_of(x.id) y where y.xid > pg_current_xact_id()))

-- name: admitted
-- Inserts the tasks that were deleted in gone into the log. Returns their number, their queues and, if they are few,
-- their ids.
added as (
  insert into tusk.log (lane, id, enqueued_at, attempt, crashes, kind, args, run_at, expires_at, claimed_at, tenant,
    key, tags, settings, failure, workflow, turn, partition)
  select g.lane, g.id, g.enqueued_at, g.attempt, g.crashes, g.kind, g.args, g.run_at, g.expires_at, g.claimed_at,
    g.tenant, g.key, g.tags, g.settings, g.failure, g.workflow, g.turn, g.partition
  from (select * from gone order by run_at, n) g)
select y.tasks::int, array(
    select (select l.queue from tusk.lane l where l.id between u.queue << 16 and (u.queue << 16) + 65535 limit 1)
    from (select distinct g.lane >> 16 as queue from gone g) u),
  case when y.tasks <= 16 then array(select g.id from gone g) end
from (select count(*) as tasks from gone) y

-- name: next_doubts
-- The first doubts after a given one.
select d.n from tusk.doubt d where d.n > ?::bigint order by d.n limit 200

-- name: worker_lock
-- The lock that the process of worker u holds in a session. It is a different one for each ledger of the database.
('x' || right(replace(u.id::text, '-', ''), 16))::bit(64)::bigint # ('tusk.log'::regclass::oid::bigint << 31)

-- name: line_table
-- Where new tasks get in line. See line.sql.
case when exists (select from tusk.program p where p.version < 13) then 0
  else coalesce(pg_catalog.pg_sequence_last_value('tusk.line_table'), 1)::int end

-- name: may_truncate
-- Whether this role may truncate the tables of lines.
coalesce(pg_catalog.has_table_privilege('tusk.line_1'::regclass::oid, 'truncate')
  and pg_catalog.has_table_privilege('tusk.line_2'::regclass::oid, 'truncate'), false)

-- name: is_idle
-- Whether nothing in the database belongs to lane u.
not exists (select from tusk.log t where t.lane = u.id)
  and not exists (select from tusk.waiting w where w.lane = u.id and w.line is null)
  and not exists (select from tusk.unready w where w.lane >> 16 = u.id >> 16 and w.line is not null)
  and not exists (select from tusk.dead d where d.lane = u.id)
  and not exists (select from tusk.lease l where l.lane = u.id)
  and not exists (select from tusk.outcome o where o.lane = u.id)
  and not exists (select from tusk.failure f where f.queue = u.id >> 16)

-- name: dead_due
-- The dead tasks that are due, except completed ones if a task that needs them has not been told of their end. $1 has
-- the retentions of completed, cancelled and discarded tasks, and $3 to $5 have those of queues $2. Tasks that are too
-- young for every queue are not read.
(
  select tusk_fn.over() as over, y.young
  from (
    select now() - min(k)::float8 * interval '1 us' as young
    from (
      select pg_catalog.unnest($1::bigint[]) union all select pg_catalog.unnest($3::bigint[])
      union all select pg_catalog.unnest($4::bigint[]) union all select pg_catalog.unnest($5::bigint[])) k(k)
    where k > 0) y
  where exists (select from tusk.dead x where x.finished_at <= y.young)
  offset 0) o
cross join lateral (
  select x.*
  from tusk.dead x
  left join unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) q(queue, completed, cancelled, discarded)
    on q.queue = x.lane >> 16
  where x.finished_at <= o.young and x.finished_at <= now() - nullif(
      case when q.queue is null then ($1::bigint[])[x.state - 5]
        else case x.state when 6 then q.completed when 7 then q.cancelled else q.discarded end end, 0)::float8
        * interval '1 us'
    and tusk_fn.may_go(x.xid, o.over)
    and not (x.state = 6 and exists (select from tusk.open_need n where n.parent = x.id))

-- name: notes
insert into tusk.note as o (id, progress, output, logs)
select x.id, x.progress::jsonb, x.output, x.logs::jsonb
from unnest(?::uuid[], ?::text[], ?::bytea[], ?::text[]) x(id, progress, output, logs)

-- name: into_notes
order by x.id
on conflict (id) do update
set progress = coalesce(excluded.progress, o.progress), output = coalesce(excluded.output, o.output),
  logs = case when excluded.logs is null then o.logs else coalesce(o.logs, '[]') || excluded.logs end

-- name: take_key
-- Has a row if a key is free and the call is no repetition. The last parameter says that the key must have no tasks.
insert into tusk.key as k (queue, key, holder, tasks)
  select ?::bigint >> 16, ?::text, ?::uuid, 1
  where pg_catalog.current_setting('transaction_isolation') = 'read committed'
  on conflict (queue, key) do update set holder = excluded.holder, tasks = k.tasks + 1
  where k.holder is null and k.ended is distinct from excluded.holder and not (?::boolean and k.tasks > 0)
  returning true
