package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// failedTask claims the task of a new ledger, and returns a function that ends its attempt with a retry in an hour.
func failedTask(t *testing.T, with func(*store.NewTask)) (
	s *postgres.Store, pool *pgxpool.Pool, task store.Task, fail func() ([]store.ID, error),
) {
	t.Helper()
	s, pool = fresh(t)
	tasks := newTasks(1, "q")
	with(&tasks[0])
	if _, err := s.Enqueue(t.Context(), tasks); err != nil {
		t.Fatal(err)
	}
	task = claimOne(t, s, startWorker(t, s))
	return s, pool, task, func() ([]store.ID, error) {
		return s.Finish(t.Context(), []store.Outcome{{Task: &task, State: store.Retryable, Attempt: 1, Delay: time.Hour,
			Error: "smtp: 421", Fingerprint: "f", Ago: 3 * time.Millisecond}})
	}
}

// A single task that fails is written without the function finish, which takes four times as long for it. With a key it
// is not.
func TestATaskThatIsTriedAgainTakesTheShortWay(t *testing.T) {
	for key, want := range map[string]int64{"": 0, "k": 1} {
		_, pool, _, fail := failedTask(t, func(task *store.NewTask) { task.Key = key })
		calls := counted(t, pool)
		if lost, err := fail(); err != nil || len(lost) > 0 {
			t.Fatal(lost, err)
		}
		const row = `select count(*) from tusk.waiting w
			join tusk.attempt a on a.id = w.id and a.state = 5 and a.number = 1 and a.error = 'smtp: 421'
				and a.ended_at between a.started_at and clock_timestamp()
			join tusk.failure f on f.fingerprint = 'f' and f.count = 1 and f.sample_task = w.id
			where w.state = 5 and w.line is null and w.attempt = 1 and w.failure = 'f' and w.claimed_at = a.started_at
				and w.run_at > clock_timestamp() + interval '59 minutes'
				and not exists (select from tusk.lease)
				and exists (select from tusk.outcome o where o.firsts = '{}' and o.stats is not null)`
		if n := number(t, pool, row); n != 1 {
			t.Errorf("key %q: %d tasks wait as they should", key, n)
		}
		if n := calls("finish"); n != want {
			t.Errorf("key %q: finish was called %d times, want %d", key, n, want)
		}
	}
}

// What came between the look at a lease and its lock counts.
func TestATaskThatIsTriedAgainSeesWhoWasFaster(t *testing.T) {
	for name, c := range map[string]struct {
		does func(tx pgx.Tx, task store.Task) error
		lost int
		dead int64
	}{
		"it was told to stop": {func(tx pgx.Tx, task store.Task) error {
			_, err := tx.Exec(t.Context(), "insert into tusk.stop (id, token, reason) values ($1, $2, 'enough')", task.ID,
				task.Lease)
			return err
		}, 0, 1},
		"a user's transaction ended it": {func(tx pgx.Tx, task store.Task) error {
			_, err := tx.Exec(t.Context(),
				"with b as (select nextval('tusk.beside')) insert into tusk.finished (token, id) select $2, $1 from b", task.ID,
				task.Lease)
			return err
		}, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			_, pool, task, fail := failedTask(t, func(*store.NewTask) {})
			tx := begin(t, pool)
			if _, err := tx.Exec(t.Context(), "select from tusk.lease for share"); err != nil {
				t.Fatal(err)
			}
			type answer struct {
				lost []store.ID
				err  error
			}
			answered := make(chan answer, 1)
			go func() {
				var held *store.HeldError
				lost, err := fail()
				for errors.As(err, &held) { // it waited for too long
					lost, err = fail()
				}
				answered <- answer{lost, err}
			}()
			eventually(t, "it waits", func() bool { return number(t, pool, blocked) == 1 })
			if err := c.does(tx, task); err != nil {
				t.Fatal(err)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if a := <-answered; a.err != nil || len(a.lost) != c.lost {
				t.Errorf("lost %v, %v", a.lost, a.err)
			}
			if n := number(t, pool, "select count(*) from tusk.dead where state = 7 and reason = 'enough'"); n != c.dead {
				t.Errorf("%d tasks are cancelled, want %d", n, c.dead)
			}
			if n := number(t, pool, "select count(*) from tusk.waiting"); n != 0 {
				t.Errorf("%d tasks wait", n)
			}
		})
	}
}

// The caller's copy of a task may lack its key. The stored one decides.
func TestATaskThatIsTriedAgainKeepsAKeyThatTheCallerDoesNotKnow(t *testing.T) {
	s, pool, task, _ := failedTask(t, func(task *store.NewTask) { task.Key = "k" })
	task.Key = ""
	lost, err := s.Finish(t.Context(), []store.Outcome{{Task: &task, State: store.Retryable, Attempt: 1, Delay: time.Hour,
		Error: "smtp: 421", Fingerprint: "f"}})
	if err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	if n := number(t, pool, "select count(*) from tusk.waiting where key = 'k' and state = 5"); n != 1 {
		t.Errorf("%d tasks with the key are tried again, want 1", n)
	}
}

// counted makes new sessions of a pool count their calls of functions. The returned function says how often one was
// called.
func counted(t *testing.T, pool *pgxpool.Pool) func(function string) int64 {
	t.Helper()
	needCounts(t, pool)
	if _, err := pool.Exec(t.Context(),
		"do $$ begin execute 'alter database ' || current_database() || ' set track_functions = pl'; end $$"); err != nil {
		t.Fatal(err)
	}
	pool.Reset()
	return func(function string) int64 {
		for _, c := range pool.AcquireAllIdle(t.Context()) {
			_, _ = c.Exec(t.Context(), "select pg_stat_force_next_flush()")
			c.Release()
		}
		return number(t, pool, "select coalesce(sum(calls), 0)::bigint from pg_stat_user_functions where funcname = '"+
			function+"'")
	}
}
