-- The types of parameters and rows that describe many tasks at once.

-- Attempts that end, as runs of consecutive ids, grouped by lease. Group g belongs to lease tokens[g] in lanes[g]. It
-- has sizes[g] runs, which follow the first offs[g] runs. ends[g] counts the tasks of all groups up to and including
-- this one, and keyed[g] its own tasks that have a key. If a whole lease is finished, its runs are those in which it
-- was claimed. ago says how long ago each attempt ended, in milliseconds; null means zero for all.
create type tusk_fn.flush as (
  tokens uuid[], lanes bigint[], offs int[], sizes int[], keyed int[], firsts uuid[], counts int[], ends int[],
  ago int[], stats bytea);

-- An end in group g that is not a plain completion. Times are in microseconds.
create type tusk_fn.odd_end as (
  g int, id uuid, state smallint, delay bigint, attempt int, crashes int, reason text, error text, trace text,
  fingerprint text, ago bigint);

-- The key of a task that ends, as tenant_key returns it. Without an id, the key stays taken.
create type tusk_fn.end_key as (queue bigint, key text, id uuid);

-- A task to enqueue, and a need of such a task. child is the place of that task in the call, from 1.
create type tusk_fn.new_task as (
  lane bigint, id uuid, kind text, args bytea, tenant text, tags text, settings bytea, run_at timestamptz, delay bigint,
  expires_at timestamptz, expires_in bigint, key text, conflict smallint, source timestamptz, workflow uuid,
  turn boolean, partition text);
create type tusk_fn.new_need as (child int, parent uuid, policy smallint);

-- A task that will run again, with its key as tenant_key returns it.
create type tusk_fn.goer as (id uuid, token uuid, queue bigint, key text);

-- What ends cause in addition to new tasks. children become pending because of needs. The tasks in yield give back
-- their turns; those that are also in keep do so only if they are cancelled. going are the tasks that will run again.
create type tusk_fn.extras as (
  children uuid[], needs tusk_fn.new_need[], yield uuid[], keep uuid[], going tusk_fn.goer[]);

-- Claimed tasks of a lane, with an array for each column. The columns from attempts on are null if every task has only
-- the required values. For a pack, an array of one element applies to all tasks, and ids has the first id. Args that
-- are too large for an array come in a row of their own, with only the lane, the id and the args, and with tasks = 0.
-- The columns of the last line are for the lease, in the order of ids, and for the lane, which is now claimed up to row
-- n of transaction hi. If args were left out, xids has the xid of every task.
create type tusk_fn.piece as (
  lane bigint, claimed_at timestamptz, ids uuid[], kinds text[], args bytea[], enqueued_at timestamptz[],
  attempts int[], crashes int[], run_at timestamptz[], expires_at timestamptz[], tenants text[], keys text[],
  tags text[], settings bytea[], workflows uuid[], turns boolean[], partitions text[],
  tasks int, firsts uuid[], counts int[], lo xid8, hi xid8, n bigint, xids xid8[]);
