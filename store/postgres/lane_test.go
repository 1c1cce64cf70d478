package postgres_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

const laneRows = `select (select count(*) from tusk.lane where queue like 'gone%')
	+ (select count(*) from tusk.lane_tally a where not exists (select from tusk.lane l where l.id = a.lane))
	+ (select count(*) from tusk.lane_position p where not exists (select from tusk.lane l where l.id = p.lane))`

// clearAll drops everything that has ended, with its segments.
func clearAll(t *testing.T, s *postgres.Store, pool *pgxpool.Pool, term int64) {
	t.Helper()
	eventually(t, "all is pruned", func() bool {
		_, err := s.Prune(t.Context(), term, store.Retention{Completed: time.Microsecond}, 1000)
		return err == nil && number(t, pool, "select count(*) from tusk.outcome") == 0
	})
	if _, err := pool.Exec(t.Context(), "truncate tusk.log"); err != nil { // as if every segment had gone
		t.Fatal(err)
	}
}

func TestLanesWithoutTasksAreForgottenInSteps(t *testing.T) {
	s, pool := fresh(t)
	ctx := t.Context()
	term, w := lead(t, s), startWorker(t, s)
	s.IdleLane(0)
	tasks := newTasks(1200, "gone")
	for i := range tasks {
		tasks[i].Priority = int16(i - 600)
	}
	if _, err := s.Enqueue(ctx, tasks); err != nil {
		t.Fatal(err)
	}
	done, err := s.Claim(ctx, store.ClaimRequest{Worker: w, Queues: []string{"gone"}, Limit: len(tasks),
		Token: store.NewToken()})
	if err != nil || len(done) != len(tasks) {
		t.Fatal(len(done), err)
	}
	if lost, err := s.Finish(ctx, completed(done)); err != nil || len(lost) > 0 {
		t.Fatal(len(lost), err)
	}
	for range 10 { // they have tasks, which are completed
		if err := s.Maintain(ctx, term); err != nil {
			t.Fatal(err)
		}
	}
	if n := number(t, pool, laneRows); n != 1200 {
		t.Fatalf("%d of 1200 lanes are left, which have tasks", n)
	}
	clearAll(t, s, pool, term)
	var steps []int64
	eventually(t, "the lanes are forgotten", func() bool {
		if err := s.Maintain(ctx, term); err != nil {
			t.Fatal(err)
		}
		steps = append(steps, number(t, pool, laneRows))
		return steps[len(steps)-1] == 0
	})
	if len(steps) < 4 {
		t.Errorf("lanes left after each step: %v", steps)
	}
	later, err := postgres.New(ctx, pool, postgres.Options{}) // s remembers the lanes for longer than it keeps them
	if err != nil {
		t.Fatal(err)
	}
	defer later.Close()
	goRoundOf(t, later, w, "gone", 10)
}

// The lane of tasks that wait for their turn has nothing else, and is not forgotten.
func TestALaneOfTasksInLineIsNotForgotten(t *testing.T) {
	l := newLimits(t)
	l.s.IdleLane(0)
	ids := l.getInLine(2)
	for range 10 {
		l.maintain()
	}
	if n := l.number("select count(*) from tusk.lane"); n != 1 {
		t.Fatalf("%d lanes are left, want 1", n)
	}
	l.grant(ids)
	if n := len(claimSome(t, l.s, l.worker, 2)); n != 2 {
		t.Errorf("%d tasks were claimed", n)
	}
}

// An enqueue may rely on the name of a lane for as long as its transaction is open.
func TestALaneIsNotForgottenBesideAnEnqueue(t *testing.T) {
	s, pool := fresh(t)
	ctx := t.Context()
	term, w := lead(t, s), startWorker(t, s)
	s.IdleLane(0)
	goRoundOf(t, s, w, "gone", 3)
	tx := begin(t, pool)
	u := txOf(t, s, tx)
	open := newTasks(1, "gone")
	if _, err := u.Enqueue(ctx, open); err != nil {
		t.Fatal(err)
	}
	// rows that are not committed stay
	if _, err := pool.Exec(ctx, "delete from tusk.outcome; delete from tusk.log"); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if err := s.Maintain(ctx, term); err != nil {
			t.Fatal(err)
		}
	}
	if n := number(t, pool, "select count(*) from tusk.lane where queue = 'gone'"); n == 0 {
		t.Error("the lane of a task that was not committed yet is forgotten")
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if tasks, err := s.Claim(ctx, store.ClaimRequest{Worker: w, Queues: []string{"gone"}, Limit: 10,
		Token: store.NewToken()}); err != nil || len(tasks) != 1 {
		t.Errorf("claimed %d, %v", len(tasks), err)
	}
}

// Processes that have not heard about it name the lane again while it is being forgotten.
func TestWhoNamesALaneWhileItIsForgottenLosesNothing(t *testing.T) {
	s, pool := fresh(t)
	ctx := t.Context()
	term, w := lead(t, s), startWorker(t, s)
	s.IdleLane(0)
	const rounds = 20
	for i := range rounds {
		var g sync.WaitGroup
		g.Go(func() {
			for range 3 {
				if err := s.Maintain(ctx, term); err != nil {
					t.Error(err)
				}
			}
		})
		g.Go(func() {
			other, err := postgres.New(ctx, pool, postgres.Options{})
			if err != nil {
				t.Error(err)
				return
			}
			defer other.Close()
			if _, err := other.Enqueue(ctx, newTasks(1, "gone")); err != nil {
				t.Error(err)
			}
		})
		g.Wait()
		tasks, err := s.Claim(ctx, store.ClaimRequest{Worker: w, Queues: []string{"gone"}, Limit: 10,
			Token: store.NewToken()})
		if err != nil || len(tasks) != 1 {
			t.Fatalf("round %d: claimed %d tasks, %v", i, len(tasks), err)
		}
		if lost, err := s.Finish(ctx, completed(tasks)); err != nil || len(lost) > 0 {
			t.Fatal(len(lost), err)
		}
		if _, err := pool.Exec(ctx, "delete from tusk.outcome; delete from tusk.log"); err != nil {
			t.Fatal(err)
		}
	}
}

// A claim may wait for other claims of its lane for longer than its worker's lease lasts. It leases nothing to a
// worker that was declared dead in the meantime.
func TestAClaimThatWaitedLeasesNothingToADeadWorker(t *testing.T) {
	s, pool := fresh(t)
	w := startWorker(t, s)
	if _, err := s.Enqueue(t.Context(), newTasks(3, "q")); err != nil {
		t.Fatal(err)
	}
	claims := map[string]func() error{
		"claim": func() error {
			_, err := s.Claim(context.Background(), store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 2,
				Token: store.NewToken()})
			return err
		},
		"exchange": func() error {
			never := completed([]store.Task{{ID: newID(), Kind: "mail", Queue: "q", Attempt: 1, Lease: store.NewToken()}})[0]
			return s.Exchange(context.Background(), never,
				store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 1, Token: store.NewToken()}).ClaimErr
		},
	}
	for name, claim := range claims {
		t.Run(name, func(t *testing.T) {
			if _, err := pool.Exec(t.Context(), "update tusk.worker set dead = false"); err != nil {
				t.Fatal(err)
			}
			other := begin(t, pool)
			if _, err := other.Exec(t.Context(), postgres.InFunctions(
				"select pg_advisory_xact_lock(tusk_fn.lane_of('q', 0) # ('tusk.log'::regclass::oid::bigint << 31))")); err != nil {
				t.Fatal(err)
			}
			answer := make(chan error, 1)
			go func() { answer <- claim() }()
			eventually(t, "the claim waits for the lane", func() bool {
				return number(t, pool, "select count(*) from pg_locks where locktype = 'advisory' and not granted") == 1
			})
			if _, err := pool.Exec(t.Context(), "update tusk.worker set dead = true"); err != nil {
				t.Fatal(err)
			}
			if err := other.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-answer; !errors.Is(err, store.ErrWorkerDead) {
				t.Errorf("%v: want that the worker is dead", err)
			}
			if n := number(t, pool, "select count(*) from tusk.lease"); n != 0 {
				t.Errorf("%d leases of a dead worker", n)
			}
		})
	}
}
