-- What functions are given of many tasks at once.

-- Attempts that end, in runs of ids, grouped by lease: group g is of tokens[g] and lanes[g] and has the sizes[g] runs
-- after the first offs[g]; up to its end there are ends[g] tasks, and keyed[g] of its own have a key. Where a lease is
-- finished as it was claimed, its runs are the same. ago is milliseconds for each task, or null.
create type tusk_fn.flush as (
  tokens uuid[], lanes bigint[], offs int[], sizes int[], keyed int[], firsts uuid[], counts int[], ends int[],
  ago int[], stats bytea);

-- An end of group g that is no plain completion. Times are in microseconds.
create type tusk_fn.odd_end as (
  g int, id uuid, state smallint, delay bigint, attempt int, crashes int, reason text, error text, trace text,
  fingerprint text, ago bigint);

-- The key of a task that ends, as its tenant owns it. Without an id it is not free yet.
create type tusk_fn.end_key as (queue bigint, key text, id uuid);

-- A task to enqueue, and what it needs: child is its place among the tasks.
create type tusk_fn.new_task as (
  lane bigint, id uuid, kind text, args bytea, tenant text, tags text, settings bytea, run_at timestamptz, delay bigint,
  expires_at timestamptz, expires_in bigint, key text, conflict smallint, source timestamptz, workflow uuid,
  turn boolean, partition text);
create type tusk_fn.new_need as (child int, parent uuid, policy smallint);

-- A task that is sent to run again, and its key as its tenant owns it.
create type tusk_fn.goer as (id uuid, token uuid, queue bigint, key text);

-- What comes with ends, beside tasks to enqueue: what pending ones of children need from now on, and turns to give
-- back. Those in keep give theirs back only if they were cancelled.
create type tusk_fn.extras as (
  children uuid[], needs tusk_fn.new_need[], yield uuid[], keep uuid[], going tusk_fn.goer[]);

-- How long a queue keeps tasks that have ended, in microseconds; 0 keeps them for ever.
create type tusk_fn.retention as (queue bigint, completed bigint, cancelled bigint, discarded bigint);

-- Tasks of a lane that were claimed, in columns. Those from attempts on are null while every task has only what it
-- must have. What the tasks of a pack share is an array of one, and so is the first of their ids. Args too large for an
-- array come in a row of their own, with neither a time nor anything else but the id; it counts no task. What follows
-- is for the lease, in the order of ids, and for the lane, whose position is now at row n of transaction hi. xids are those of all, where args are left out.
create type tusk_fn.piece as (
  lane bigint, claimed_at timestamptz, ids uuid[], kinds text[], args bytea[], enqueued_at timestamptz[],
  attempts int[], crashes int[], run_at timestamptz[], expires_at timestamptz[], tenants text[], keys text[],
  tags text[], settings bytea[], workflows uuid[], turns boolean[], partitions text[],
  tasks int, firsts uuid[], counts int[], lo xid8, hi xid8, n bigint, xids xid8[]);
