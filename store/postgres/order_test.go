package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// crossing is a case in which two calls could wait for each other. A gate stops the first call half-way. The second
// one begins, and waits for the first or for the gate.
type crossing struct {
	gate          string // what another session locks first
	first, second func(ctx context.Context) error
}

// The server would notice a deadlock only after an hour, so sessions that wait for each other hang.
func TestNoTwoCallsWaitForEachOther(t *testing.T) {
	for name, of := range map[string]func(t *testing.T, s *postgres.Store, pool *pgxpool.Pool) crossing{
		"a flush and a cancel of a task with a key": flushAndCancel,
		"pruning and a retry":                       pruneAndRetry,
		"a replacement and a change of priority":    replaceAndReprioritize,
		"replacements in two lanes":                 replaceTwice,
		"flushes of the same errors":                failTwice,
	} {
		t.Run(name, func(t *testing.T) {
			s, pool := open(t, migrated.DSN(t, "deadlock_timeout=1h"), false)
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			c := of(t, s, pool)
			tx := begin(t, pool)
			if tag, err := tx.Exec(ctx, postgres.InFunctions(c.gate)); err != nil || tag.RowsAffected() != 1 {
				t.Fatal(tag, err)
			}
			answers := make(chan error, 2)
			for _, call := range []func(context.Context) error{c.first, c.second} {
				before := number(t, pool, blocked)
				began := make(chan bool)
				go func() {
					err := call(ctx)
					close(began)
					answers <- err
				}()
				eventually(t, "it waits or has ended", func() bool {
					select {
					case <-began:
						return true
					default:
						return number(t, pool, blocked) > before
					}
				})
			}
			if err := tx.Rollback(ctx); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := <-answers; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// running enqueues tasks, claims them under one lease, and returns them.
func running(t *testing.T, s *postgres.Store, tasks []store.NewTask) []store.Task {
	t.Helper()
	ctx := context.Background()
	if _, err := s.Enqueue(ctx, tasks); err != nil {
		t.Fatal(err)
	}
	claimed, err := s.Claim(ctx, store.ClaimRequest{Worker: startWorker(t, s), Queues: []string{tasks[0].Queue},
		Limit: len(tasks), Token: store.NewToken()})
	if err != nil || len(claimed) != len(tasks) {
		t.Fatal(len(claimed), err)
	}
	return claimed
}

func withKeys(tasks []store.NewTask, keys ...string) []store.NewTask {
	for i, key := range keys {
		tasks[i].Key, tasks[i].OnConflict = key, store.Replace
	}
	return tasks
}

func finishing(s *postgres.Store, outcomes []store.Outcome) func(context.Context) error {
	return func(ctx context.Context) error {
		lost, err := s.Finish(ctx, outcomes)
		if len(lost) > 0 {
			return fmt.Errorf("%d are lost", len(lost))
		}
		return err
	}
}

func enqueuing(s *postgres.Store, tasks []store.NewTask) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := s.Enqueue(ctx, tasks)
		return err
	}
}

func editing(s *postgres.Store, op store.Op, priority int16, ids ...store.ID) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := s.Edit(ctx, store.Edit{IDs: ids, Change: store.Change{Op: op, Priority: priority}})
		return err
	}
}

func flushAndCancel(t *testing.T, s *postgres.Store, _ *pgxpool.Pool) crossing {
	tasks := running(t, s, withKeys(newTasks(1, "q"), "a"))
	return crossing{
		gate:  "select from tusk.lease for update",
		first: finishing(s, completed(tasks)), second: editing(s, store.Cancel, 0, tasks[0].ID),
	}
}

func pruneAndRetry(t *testing.T, s *postgres.Store, _ *pgxpool.Pool) crossing {
	tasks := running(t, s, withKeys(newTasks(2, "q"), "a", "b"))
	outcomes := completed(tasks)
	for i := range outcomes { // the lease of "a" is the older one
		outcomes[i].State = store.Discarded
		if err := finishing(s, outcomes[i:i+1])(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	term := lead(t, s)
	prune := func(ctx context.Context) error {
		_, err := s.Prune(ctx, term, store.Retention{Discarded: time.Millisecond}, 100)
		return err
	}
	return crossing{gate: "select from tusk.key where key = tusk_fn.tenant_key('', 'a') for update", first: prune,
		second: editing(s, store.Retry, 0, tasks[1].ID)}
}

func replaceAndReprioritize(t *testing.T, s *postgres.Store, _ *pgxpool.Pool) crossing {
	tasks := withKeys(newTasks(3, "q"), "a", "b")
	tasks[0].Delay = time.Hour
	if err := enqueuing(s, tasks)(context.Background()); err != nil {
		t.Fatal(err)
	}
	again := withKeys(newTasks(2, "q"), "a", "b")
	again[1].Delay = time.Hour
	return crossing{
		gate:  "select from tusk.key where key = tusk_fn.tenant_key('', 'b') for update",
		first: enqueuing(s, again), second: editing(s, store.Reprioritize, 5, tasks[0].ID, tasks[2].ID),
	}
}

func replaceTwice(t *testing.T, s *postgres.Store, _ *pgxpool.Pool) crossing {
	stored := withKeys(newTasks(4, "q"), "a", "b", "c", "d")
	stored[0].Priority, stored[3].Priority = 1, 1
	if err := enqueuing(s, stored)(context.Background()); err != nil {
		t.Fatal(err)
	}
	return crossing{
		gate:  "select from tusk.key where key = tusk_fn.tenant_key('', 'b') for update",
		first: enqueuing(s, withKeys(newTasks(2, "q"), "a", "b")), second: enqueuing(s, withKeys(newTasks(2, "q"), "c", "d")),
	}
}

func failTwice(t *testing.T, s *postgres.Store, _ *pgxpool.Pool) crossing {
	fails := func(tasks []store.Task, prints ...string) []store.Outcome {
		outcomes := completed(tasks)
		for i := range outcomes {
			outcomes[i].State, outcomes[i].Error, outcomes[i].Fingerprint = store.Discarded, "no", prints[i]
		}
		return outcomes
	}
	if err := finishing(s, fails(running(t, s, newTasks(3, "q")), "x", "y", "z"))(context.Background()); err != nil {
		t.Fatal(err)
	}
	return crossing{
		gate:   "select from tusk.failure where fingerprint = 'z' for update",
		first:  finishing(s, fails(running(t, s, newTasks(3, "q")), "x", "z", "y")),
		second: finishing(s, fails(running(t, s, newTasks(2, "q")), "y", "x")),
	}
}

// A flush that waits for a key does not keep a transaction from finishing another task of its lease.
func TestAFlushAndATransactionThatHoldsItsKeyDoNotWaitForEachOther(t *testing.T) {
	s, pool := open(t, migrated.DSN(t, "deadlock_timeout=1h"), false)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	tasks := running(t, s, withKeys(newTasks(2, "q"), "a"))
	outcomes := completed(tasks)
	answer := make(chan error, 1)
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		mine, err := s.Tx(tx)
		if err != nil {
			return err
		}
		if _, err := mine.Enqueue(ctx, withKeys(newTasks(1, "q"), "a")); err != nil {
			return err
		}
		go func() { answer <- finishing(s, outcomes[:1])(ctx) }()
		eventually(t, "the flush waits", func() bool { return number(t, pool, blocked) == 1 })
		lost, err := mine.Finish(ctx, outcomes[1:])
		if len(lost) > 0 {
			err = errors.Join(err, errors.New("it is lost"))
		}
		return err
	})
	if err = errors.Join(err, <-answer); err != nil {
		t.Fatal(err)
	}
}

// A session that waits for a key holds no later key in the meantime.
func TestNoKeyIsHeldBehindOneThatIsWaitedFor(t *testing.T) {
	s, pool := fresh(t)
	ctx := t.Context()
	if _, err := s.Enqueue(ctx, withKeys(newTasks(2, "q"), "a", "b")); err != nil {
		t.Fatal(err)
	}
	const lock = "select from tusk.key where key like '%%%s' for update nowait"
	holder, waiter, other := begin(t, pool), begin(t, pool), begin(t, pool)
	if _, err := holder.Exec(ctx, fmt.Sprintf(lock, "a")); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		waits := make(chan error)
		go func() {
			_, err := waiter.Exec(ctx, postgres.InFunctions(`savepoint before;
				select tusk_fn.lock_free_keys(array_agg(queue order by key desc), array_agg(key order by key desc))
				from tusk.key;
				rollback to before`))
			waits <- err
		}()
		waited := func() bool { return number(t, pool, blocked) > 0 }
		for until := time.Now().Add(100 * time.Millisecond); !waited() && time.Now().Before(until); {
		}
		_, err := other.Exec(ctx, "savepoint before; "+fmt.Sprintf(lock, "b"))
		sure := waited() // it has waited all the time
		if _, err := other.Exec(ctx, "rollback to before"); err != nil {
			t.Fatal(err)
		}
		if err := <-waits; err != nil {
			t.Fatal(err)
		}
		if sure && err != nil {
			t.Fatalf("it waits for one key, and holds the next: %v", err)
		}
		if sure {
			return
		}
	}
	t.Fatal("in 100 tries nobody was seen waiting for a key")
}
