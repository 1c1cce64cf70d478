package postgres_test

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// A user's transaction commits the end of an attempt while a flush of the same attempt is about to lock it. The
// flush sees the commit.
func TestAFlushSeesWhatWasCommittedBeforeItsLock(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	tasks := running(t, s, newTasks(3, "q"))
	tx := begin(t, pool)
	completeIn(t, s, tx, tasks[:1])
	gate := gateBeforeLock(t, pool, tasks[0].ID)
	type answer struct {
		lost []store.ID
		err  error
	}
	flushed := make(chan answer)
	go func() {
		out := completed(tasks[1:])
		out = append(out, store.Outcome{Task: &tasks[0], State: store.Retryable, Attempt: 1, Error: "commit: connection lost",
			Fingerprint: "f"})
		lost, err := s.Finish(ctx, out)
		flushed <- answer{lost, err}
	}()
	gate.reached()
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	gate.open()
	if a := <-flushed; a.err != nil || len(a.lost) != 1 || a.lost[0] != tasks[0].ID {
		t.Errorf("lost %v, error %v: want the task of the transaction to be lost", a.lost, a.err)
	}
	endedOnce(t, pool, tasks...)
}

// A flush commits while a user's transaction is about to lock the same attempt, under a lease that another open
// transaction shares. The user's transaction sees the flush.
func TestATransactionSeesWhatWasFlushedBeforeItsLock(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	tasks := running(t, s, newTasks(3, "q"))
	other := begin(t, pool)
	completeIn(t, s, other, tasks[:1])
	tx := begin(t, pool)
	gate := gateBeforeLock(t, pool, tasks[1].ID)
	u := txOf(t, s, tx)
	finished := make(chan []store.ID)
	go func() {
		lost, err := u.Finish(ctx, completed(tasks[1:2]))
		if err != nil {
			t.Error(err)
		}
		finished <- lost
	}()
	gate.reached()
	rescued := store.Outcome{Task: &tasks[1], State: store.Retryable, Attempt: 1, Error: "worker died",
		Fingerprint: "f", Crashes: 1}
	if lost, err := s.Finish(ctx, []store.Outcome{rescued}); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	gate.open()
	if lost := <-finished; len(lost) != 1 {
		t.Errorf("the transaction finished an attempt that was flushed before")
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if err := other.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	endedOnce(t, pool, tasks[1])
}

// gate stops a session right before it locks an attempt of a task.
type gate struct {
	t    *testing.T
	pool *pgxpool.Pool
	tx   pgx.Tx
}

// gateBeforeLock makes the next session that is about to lock an attempt of the task wait. Sessions that come while
// it waits pass.
func gateBeforeLock(t *testing.T, pool *pgxpool.Pool, id store.ID) gate {
	t.Helper()
	ctx := context.Background()
	g := gate{t, pool, begin(t, pool)}
	if _, err := g.tx.Exec(ctx, "select pg_advisory_xact_lock(4711)"); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(ctx, postgres.InFunctions(`
alter function tusk_fn.try_finish rename to try_finish_ungated;
create function tusk_fn.try_finish(_token uuid, _id uuid) returns boolean language plpgsql as $$
begin
  if _id = '`+id.String()+`' and not exists (
    select from pg_locks where locktype = 'advisory' and objid = 4711 and not granted) then
    perform pg_advisory_lock_shared(4711);
    perform pg_advisory_unlock_shared(4711);
  end if;
  return tusk_fn.try_finish_ungated(_token, _id);
end $$`)); err != nil {
		t.Fatal(err)
	}
	return g
}

// reached returns when a session waits at the gate.
func (g gate) reached() {
	g.t.Helper()
	for begun := time.Now(); time.Since(begun) < 30*time.Second; time.Sleep(5 * time.Millisecond) {
		if number(g.t, g.pool,
			"select count(*) from pg_locks where locktype = 'advisory' and objid = 4711 and not granted") > 0 {
			return
		}
	}
	g.t.Fatal("nobody locks the attempt")
}

func (g gate) open() {
	g.t.Helper()
	if err := g.tx.Rollback(context.Background()); err != nil {
		g.t.Fatal(err)
	}
}

func begin(t testing.TB, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback(context.Background()) })
	return tx
}

// beginWriting begins a transaction that has an id, as one that writes has.
func beginWriting(t *testing.T, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx := begin(t, pool)
	if _, err := tx.Exec(context.Background(), "select pg_current_xact_id()"); err != nil {
		t.Fatal(err)
	}
	return tx
}

// txOf returns the engine's side of a user's transaction.
func txOf(t *testing.T, s *postgres.Store, tx any) store.Tx {
	t.Helper()
	u, err := s.Tx(tx)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// completeIn completes tasks in a user's transaction.
func completeIn(t *testing.T, s *postgres.Store, tx pgx.Tx, tasks []store.Task) {
	t.Helper()
	finish(t, txOf(t, s, tx), tasks)
}

// endedOnce fails unless each task was either completed once or sent to run again once.
func endedOnce(t *testing.T, pool *pgxpool.Pool, tasks ...store.Task) {
	t.Helper()
	for _, task := range tasks {
		again := number(t, pool, "select count(*) from tusk.waiting where id = $1", [16]byte(task.ID))
		done := number(t, pool, "select count(*) from tusk.outcome o, tusk_fn.ids_of(o.firsts, o.counts) i where i.id = $1",
			[16]byte(task.ID))
		if again+done != 1 {
			t.Errorf("task %v was completed %d times and is to run again %d times", task.ID, done, again)
		}
	}
}

// Whether an attempt is open is judged in a statement after the one that locks it, because the snapshot of a
// statement may be older than the locks that it takes.
func TestEveryFunctionJudgesAttemptsAfterItsLocks(t *testing.T) {
	_, pool := fresh(t)
	sources := functions(t, pool)
	locks := 0
	for name, text := range sources {
		for _, s := range statements(text) {
			if locksAttempt.MatchString(s) {
				locks++
			}
		}
		for _, bad := range judgedTooEarly(text) {
			if name == "tidy" && strings.HasPrefix(bad, "for x in select l.token, l.lane from tusk.lease l") {
				continue // only a list of leases to look at: close judges each again once it is locked
			}
			t.Errorf("%s judges before it has the lock: %s", name, bad)
		}
	}
	if locks < 8 {
		t.Errorf("only %d statements that lock attempts were found in %d functions", locks, len(sources))
	}
}

// A statement that writes a note may wait for its row. A function that judges by an attempt whether to write one
// judges again in a later statement.
func TestEveryFunctionThatWritesNotesJudgesAfterwards(t *testing.T) {
	_, pool := fresh(t)
	writers := 0
	for name, text := range functions(t, pool) {
		wrote, judged := -1, -1
		for i, s := range statements(text) {
			if writesNote.MatchString(s) {
				wrote, writers = i, writers+1
			}
			if judgesAttempt.MatchString(s) {
				judged = i
			}
		}
		if wrote >= 0 && judged >= 0 && judged <= wrote {
			t.Errorf("%s judges before it has written a note, and not afterwards", name)
		}
	}
	if writers < 2 {
		t.Errorf("only %d statements that write notes were found", writers)
	}
}

// A user's transaction ends an attempt with a note while a beat waits to write another.
func TestANoteOfABeatIsNotStoredOnceTheAttemptHasEnded(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	tasks := running(t, s, newTasks(1, "q"))
	tx := begin(t, pool)
	u := txOf(t, s, tx)
	done := completed(tasks)
	done[0].Note = &store.Note{Output: []byte(`1`)}
	if lost, err := u.Finish(ctx, done); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	patient := postgres.InFunctions("alter function tusk_fn.write_notes set lock_timeout = 0")
	if _, err := pool.Exec(ctx, patient); err != nil {
		t.Fatal(err)
	}
	wrote := make(chan error)
	go func() {
		_, err := pool.Exec(ctx, postgres.InFunctions(
			`select tusk_fn.write_notes(array[$1]::uuid[], array[$2]::uuid[], '{"{\"percent\": 50}"}', '{null}', '{null}')`),
			[16]byte(tasks[0].ID), [16]byte(tasks[0].Lease))
		wrote <- err
	}()
	for number(t, pool,
		"select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%write_notes%'") == 0 {
		time.Sleep(5 * time.Millisecond)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}
	if n := number(t, pool, "select count(*) from tusk.note where progress is not null"); n > 0 {
		t.Error("the note of an attempt that had ended was stored")
	}
}

func TestAJudgementBeforeItsLockIsFound(t *testing.T) {
	for name, text := range map[string]string{
		"in a declaration before the locks": `
declare
  _open uuid[] := tusk_fn.open_in(_token, _lane);
begin
  return query
  select _token, u.id, true from unnest(_ids) u(id) join unnest(_open) o(id) on o.id = u.id
  where not tusk_fn.try_finish(_token, u.id);
end`,
		"in the statement that locks": `
begin
  if not tusk_fn.try_finish(_token, _id)
    or not exists (select from tusk_fn.running r where r.token = _token and r.lane = _lane and r.id = _id) then
    return false;
  end if;
end`,
		"in a subquery of the statement that locks the lease": `
begin
  perform 1 from tusk.lease x where x.token = _token
    and not exists (select from tusk.finished f where f.token = _token) for update;
end`,
	} {
		if len(judgedTooEarly(text)) == 0 {
			t.Errorf("not found: %s", name)
		}
	}
}

// functions returns the sources of the functions of the schema, by name.
func functions(t *testing.T, pool *pgxpool.Pool) map[string]string {
	t.Helper()
	rows, err := pool.Query(context.Background(),
		postgres.InFunctions(`select proname, replace(prosrc, 'tusk_fn', 'tusk_' || 'fn') from pg_proc
			where pronamespace = 'tusk_fn'::regnamespace order by proname`))
	if err != nil {
		t.Fatal(err)
	}
	sources := map[string]string{}
	for rows.Next() {
		var name, text string
		if err := rows.Scan(&name, &text); err != nil {
			t.Fatal(err)
		}
		sources[name] = text
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return sources
}

var (
	writesNote   = regexp.MustCompile(`(insert into|update) tusk\.note\b`)
	locksAttempt = regexp.MustCompile(
		`(?s)tusk_fn\.try_finish\(|tusk\.lease\b.*\bfor (no key update|update|key share|share)\b`)
	judgesAttempt = regexp.MustCompile(`tusk_fn\.(running|open_in|open_parts)\b|tusk\.finished f\b`)
	ofLocked      = regexp.MustCompile(`\b_locked\b`)
	comment       = regexp.MustCompile(`--[^\n]*`)
	boundary      = regexp.MustCompile(`;|\b(?:then|else|loop|begin)\b`)
)

// judgedTooEarly returns the statements of a function that judge whether attempts are open in the same statement
// that locks attempts, or before it. Statements that judge only rows which were locked before, and say so by the
// name _locked, are right.
func judgedTooEarly(text string) (bad []string) {
	all := statements(text)
	for i, s := range all {
		if !judgesAttempt.MatchString(s) {
			continue
		}
		early := locksAttempt.MatchString(s)
		for _, later := range all[i+1:] {
			early = early || !ofLocked.MatchString(s) && locksAttempt.MatchString(later)
		}
		if early {
			bad = append(bad, strings.Join(strings.Fields(s), " "))
		}
	}
	return bad
}

func statements(text string) []string {
	return boundary.Split(strings.ToLower(comment.ReplaceAllString(text, "")), -1)
}
