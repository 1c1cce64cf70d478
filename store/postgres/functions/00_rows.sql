-- The types of parameters and rows that describe many tasks at once.

-- Attempts that end, in runs of ids, grouped by lease. Group g belongs to the lease tokens[g] in lanes[g]. It has the
-- sizes[g] runs that follow the first offs[g] runs; ends[g] tasks are in the groups up to it, and keyed[g] of its own
-- have a key. The runs of a lease that is finished as a whole are those in which it was claimed. ago has milliseconds
-- for each task; null means zero for all.
create type tusk_fn.flush as (
  tokens uuid[], lanes bigint[], offs int[], sizes int[], keyed int[], firsts uuid[], counts int[], ends int[],
  ago int[], stats bytea);

-- An end in group g that is not a plain completion. Times are in microseconds.
create type tusk_fn.odd_end as (
  g int, id uuid, state smallint, delay bigint, attempt int, crashes int, reason text, error text, trace text,
  fingerprint text, ago bigint);

-- The key of a task that ends, as tenant_key returns it. A key without an id does not become free.
create type tusk_fn.end_key as (queue bigint, key text, id uuid);

-- A task to enqueue, and a need: child is the place of its task among the tasks.
create type tusk_fn.new_task as (
  lane bigint, id uuid, kind text, args bytea, tenant text, tags text, settings bytea, run_at timestamptz, delay bigint,
  expires_at timestamptz, expires_in bigint, key text, conflict smallint, source timestamptz, workflow uuid,
  turn boolean, partition text);
create type tusk_fn.new_need as (child int, parent uuid, policy smallint);

-- A task that will run again, and its key as tenant_key returns it.
create type tusk_fn.goer as (id uuid, token uuid, queue bigint, key text);

-- What ends bring besides tasks to enqueue: the needs of children, which are pending from now on, and the turns to give
-- back. Tasks in keep give theirs back only if they are cancelled.
create type tusk_fn.extras as (
  children uuid[], needs tusk_fn.new_need[], yield uuid[], keep uuid[], going tusk_fn.goer[]);

-- Claimed tasks of a lane, in columns. Columns from attempts on are null if no task has more than the required values.
-- An array of one element applies to all tasks of a pack, except that ids then has the first id. Args too large for an
-- array come in a row of their own, which has only the id besides, and where tasks is 0. The columns of the last line
-- are for the lease, in the order of ids, and for the lane, which is now claimed up to row n of transaction hi. xids
-- has the xid of every task if args were left out.
create type tusk_fn.piece as (
  lane bigint, claimed_at timestamptz, ids uuid[], kinds text[], args bytea[], enqueued_at timestamptz[],
  attempts int[], crashes int[], run_at timestamptz[], expires_at timestamptz[], tenants text[], keys text[],
  tags text[], settings bytea[], workflows uuid[], turns boolean[], partitions text[],
  tasks int, firsts uuid[], counts int[], lo xid8, hi xid8, n bigint, xids xid8[]);
