package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// The first task that ever needs another may come while a flush ends the other one, after the flush has seen that
// no task needs any.
func TestAFlushSeesTheFirstNeedThatComesMeanwhile(t *testing.T) {
	for name, end := range map[string]func(s *postgres.Store, w store.ID, done store.Outcome) error{
		"finish": func(s *postgres.Store, _ store.ID, done store.Outcome) error {
			lost, err := s.Finish(context.Background(), []store.Outcome{done})
			if len(lost) > 0 {
				err = errors.Join(err, errors.New("lost"))
			}
			return err
		},
		"exchange": func(s *postgres.Store, w store.ID, done store.Outcome) error {
			x := s.Exchange(context.Background(), done, store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 1,
				Token: store.NewToken()})
			if x.Lost || len(x.Tasks) > 0 {
				x.FinishErr = errors.Join(x.FinishErr, errors.New("lost, or claimed what was not there"))
			}
			return errors.Join(x.FinishErr, x.ClaimErr)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, pool := fresh(t)
			w := single{t, s, startWorker(t, s)}
			parent, child := newTasks(1, "q"), newTasks(1, "q")
			w.add(parent...)
			running := w.next()
			tx := begin(t, pool)
			if _, err := tx.Exec(t.Context(), "lock table tusk.outcome in share mode"); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- end(s, w.worker, completed([]store.Task{*running})[0]) }()
			eventually(t, "the flush waits", func() bool {
				var waits bool
				err := pool.QueryRow(t.Context(),
					"select exists (select from pg_locks where not granted and relation = 'tusk.outcome'::regclass)").Scan(&waits)
				return err == nil && waits
			})
			child[0].Needs = []store.Need{{Task: parent[0].ID}}
			w.add(child...)
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			w.wants("the task whose need has ended", child[0].ID)
		})
	}
}

// Once anything was put beside leases, an exchange looks for it, still in one trip.
func TestAnExchangeSetsFreeWhatNeededItsTask(t *testing.T) {
	s, _ := fresh(t)
	w := single{t, s, startWorker(t, s)}
	ask := func() store.ClaimRequest {
		return store.ClaimRequest{Worker: w.worker, Queues: []string{"q"}, Limit: 1, Token: store.NewToken()}
	}
	tasks := newTasks(3, "q")
	w.add(tasks...)
	child := newTasks(1, "q")
	child[0].Needs = []store.Need{{Task: tasks[0].ID}}
	w.add(child...)
	running := w.next()
	for i := range 3 {
		before, err := s.Measure(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		x := s.Exchange(t.Context(), completed([]store.Task{*running})[0], ask())
		after, err := s.Measure(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := append(tasks[1:], child...)[i].ID
		if x.FinishErr != nil || x.ClaimErr != nil || x.Lost || len(x.Tasks) != 1 || x.Tasks[0].ID != want {
			t.Fatalf("exchange %d: %+v, want %v", i, x, want)
		}
		if trips := after.RoundTrips - before.RoundTrips; trips != 1 {
			t.Errorf("exchange %d took %d trips", i, trips)
		}
		running = &x.Tasks[0]
	}
	if x := s.Exchange(t.Context(), completed([]store.Task{*running})[0], ask()); x.FinishErr != nil ||
		x.ClaimErr != nil || x.Lost || len(x.Tasks) != 0 {
		t.Errorf("the last one: %+v", x)
	}
}

// Whichever way a claim of one task takes, it returns the same.
func TestAnExchangeReturnsTasksOfPacksLikeAnyOther(t *testing.T) {
	s, pool := fresh(t)
	s.PackAll()
	w := single{t, s, startWorker(t, s)}
	packs := newPacks(8, "q")
	w.add(packs...)
	tx := begin(t, pool) // makes late rows in the lane
	u := txOf(t, s, tx)
	if _, err := u.Enqueue(t.Context(), newTasks(1, "q")); err != nil {
		t.Fatal(err)
	}
	tagged := newPacks(4, "q")
	for i := range tagged {
		tagged[i].Tags = []string{"a"}
	}
	w.add(tagged...)
	wanted := append(packs, tagged...)
	never := completed([]store.Task{{ID: newID(), Kind: "mail", Queue: "q", Attempt: 1, Lease: store.NewToken()}})
	for i := range wanted {
		queues := [][]string{{"q"}, {"q", "other"}}[i%2]
		x := s.Exchange(t.Context(), never[0], store.ClaimRequest{Worker: w.worker, Queues: queues, Limit: 1,
			Token: store.NewToken()})
		if len(x.Tasks) != 1 || x.ClaimErr != nil || !x.Lost {
			t.Fatalf("exchange %d: %+v", i, x)
		}
		got := &x.Tasks[0]
		if got.ID != wanted[i].ID || got.Attempt != 1 || got.Crashes != 0 || !bytes.Equal(got.Args, wanted[i].Args) ||
			!slices.Equal(got.Tags, wanted[i].Tags) ||
			!got.RunAt.Equal(got.EnqueuedAt) || got.ClaimedAt.IsZero() {
			t.Errorf("task %d: %+v", i, got)
		}
	}
}

// An open transaction may hold the lane. A task that has ended does not wait for it.
func TestAnExchangeWritesWhatEndedThoughTheLaneIsHeld(t *testing.T) {
	s, pool := fresh(t)
	w := single{t, s, startWorker(t, s)}
	tasks := newTasks(3, "q")
	w.add(tasks...)
	running := w.next()
	tx := begin(t, pool)
	if _, err := tx.Exec(
		t.Context(), postgres.InFunctions("select tusk_fn.lock_lane(tusk_fn.lane_of('q', 0))")); err != nil {
		t.Fatal(err)
	}
	answer := make(chan store.Exchanged, 1)
	go func() {
		answer <- s.Exchange(context.Background(), completed([]store.Task{*running})[0],
			store.ClaimRequest{Worker: w.worker, Queues: []string{"q"}, Limit: 1, Token: store.NewToken()})
	}()
	eventually(t, "it is completed", func() bool {
		return number(t, pool, "select count(*) from tusk.tasks where state = 'completed'") == 1
	})
	if x := <-answer; x.FinishErr != nil || x.ClaimErr != nil || x.Lost || len(x.Tasks) != 0 {
		t.Errorf("%+v", x)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if next := w.next(); next.ID != tasks[1].ID {
		t.Errorf("claimed %v", next.ID)
	}
}

// An exchange takes two trips if the outcome brings more than the end of its task, or if the task has a key.
func TestAnExchangeWritesEveryOutcome(t *testing.T) {
	s, _ := fresh(t)
	w := single{t, s, startWorker(t, s)}
	tasks := newTasks(6, "q")
	tasks[3].Key = "k"
	w.add(tasks...)
	running := w.next()
	change := []func(*store.Outcome){
		func(o *store.Outcome) { o.State, o.Delay, o.Error = store.Retryable, 3600e9, "boom" },
		func(o *store.Outcome) { o.Note = &store.Note{Output: []byte(`"out"`)} },
		func(o *store.Outcome) { o.Then = newTasks(1, "then") },
		func(o *store.Outcome) {},
		func(o *store.Outcome) { o.State, o.Reason = store.Discarded, "why" },
	}
	for i := range change {
		o := completed([]store.Task{*running})[0]
		change[i](&o)
		x := s.Exchange(t.Context(), o, store.ClaimRequest{Worker: w.worker, Queues: []string{"q"}, Limit: 1,
			Token: store.NewToken()})
		if x.FinishErr != nil || x.ClaimErr != nil || x.Lost || len(x.Tasks) != 1 || x.Tasks[0].ID != tasks[i+1].ID {
			t.Fatalf("outcome %d: %+v", i, x)
		}
		stored, err := s.List(t.Context(), store.Filter{IDs: []store.ID{o.Task.ID}, Detail: true})
		if err != nil || len(stored) != 1 || stored[0].State != o.State || stored[0].Reason != o.Reason ||
			o.Note != nil && string(stored[0].Detail.Output) != `"out"` {
			t.Errorf("outcome %d: stored %+v, %v", i, stored, err)
		}
		running = &x.Tasks[0]
	}
	again := newTasks(1, "q")
	again[0].Key = "k"
	if results, err := s.Enqueue(t.Context(), again); err != nil || results[0].Result != store.Added {
		t.Errorf("the key of a task that has ended: %+v, %v", results, err)
	}
}

// An exchange whose wait for its lane timed out does not say that there is no task.
func TestAnExchangeThatFoundItsLaneBusyLooksAgain(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	w := single{t, s, startWorker(t, s)}
	w.add(newTasks(3, "q")...)
	done := w.next()
	w.next()
	tx := begin(t, pool)
	if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock(l.id # ('tusk.log'::regclass::oid::bigint << 31))
		from tusk.lane l`); err != nil { // locks the lane, as another claim does
		t.Fatal(err)
	}
	free := make(chan struct{})
	go func() { defer close(free); time.Sleep(1100 * time.Millisecond); _ = tx.Rollback(ctx) }()
	x := s.Exchange(ctx, completed([]store.Task{*done})[0],
		store.ClaimRequest{Worker: w.worker, Queues: []string{"q"}, Limit: 1, Token: store.NewToken()})
	<-free
	if len(x.Tasks) != 1 || x.ClaimErr != nil || x.FinishErr != nil || x.Lost {
		t.Errorf("%+v", x)
	}
}
