package ledgers_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
	"github.com/tuskqueue/tusk/store/postgres"
	"github.com/tuskqueue/tusk/store/storetest"
)

func newTask(change func(*store.NewTask)) store.NewTask {
	n := store.NewTask{ID: tusk.NewID(), Kind: "k", Queue: "q", Args: []byte(`{}`)}
	if change != nil {
		change(&n)
	}
	return n
}

func add(t *testing.T, s store.Enqueuer, tasks ...store.NewTask) []store.Enqueued {
	t.Helper()
	results, err := s.Enqueue(context.Background(), tasks)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

func worker(t *testing.T, s store.Store) store.ID {
	t.Helper()
	id := storetest.NewID()
	if _, err := s.Extend(context.Background(), store.Beat{Worker: store.Worker{ID: id}, TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	return id
}

func claim(t *testing.T, s store.Store, worker store.ID, limit int) []store.Task {
	t.Helper()
	r := store.ClaimRequest{Worker: worker, Queues: []string{"q"}, Limit: limit, Token: store.NewToken()}
	tasks, err := s.Claim(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	return tasks
}

// With N ledgers, a task that precedes all others of its ledger is claimed by one of the
// next N claims, however many tasks the other ledgers have.
func TestAnUrgentTaskIsClaimedWithinOneRoundOfTheLedgers(t *testing.T) {
	s := open(t, three.DSN(t))
	w := worker(t, s)
	for range 60 {
		var tasks []store.NewTask
		for range 10 {
			tasks = append(tasks, newTask(nil))
		}
		add(t, s, tasks...)
	}
	claim(t, s, w, 5) // now the process knows more about some ledgers than about others
	for round := range 12 {
		urgent := add(t, s, newTask(func(n *store.NewTask) { n.Priority = -1 }))[0].ID
		claims := 0
		for found := false; !found; claims++ {
			if claims == 3 {
				t.Fatalf("round %d: the urgent task was not in the first 3 claims", round)
			}
			for _, task := range claim(t, s, w, 5) {
				found = found || task.ID == urgent
			}
		}
	}
}

// Otherwise the tasks that the worker holds in other ledgers would be rescued a TTL later.
func TestAWorkerThatIsDeadInOneLedgerIsDeadInAll(t *testing.T) {
	s := open(t, three.DSN(t))
	w := worker(t, s)
	if err := ledgers.Leave(t.Context(), s, 1, w); err != nil {
		t.Fatal(err)
	}
	beat := store.Beat{Worker: store.Worker{ID: w}, TTL: time.Minute, Seq: 7}
	if _, err := s.Extend(t.Context(), beat); !errors.Is(err, store.ErrWorkerDead) {
		t.Errorf("a beat is answered with %v", err)
	}
	if all, err := s.Workers(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("still listed: %+v, %v", all, err)
	}
}

func TestTasksSpreadOverAllLedgersAndThoseOfACallLieTogether(t *testing.T) {
	s := open(t, three.DSN(t))
	ctx := context.Background()
	for range 60 {
		add(t, s, newTask(nil), newTask(nil), newTask(nil))
	}
	seen := map[int]int{}
	for no, name := range []string{"tusk_0_of_3", "tusk_1_of_3", "tusk_2_of_3"} {
		one, err := postgres.New(ctx, ledgers.Pool(s), postgres.Options{Schema: name})
		if err != nil {
			t.Fatal(err)
		}
		defer one.Close()
		counts, err := one.Count(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range counts {
			seen[no] += int(c.Tasks)
		}
		if seen[no]%3 != 0 || seen[no] < 9 { // 180 tasks in all
			t.Errorf("ledger %d has %d tasks", no, seen[no])
		}
	}
}

// sleep is a kind of task. The test counts how many run at a time.
type sleep struct{}

func (sleep) Kind() string { return "sleep" }

func TestALimitCountsTheTasksOfAllLedgers(t *testing.T) {
	s := open(t, three.DSN(t))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client, err := tusk.NewClient(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.SetLimits(ctx, "q", tusk.Limits{Concurrency: 2}); err != nil {
		t.Fatal(err)
	}
	const all = 30
	for range all {
		if _, err := client.Enqueue(ctx, sleep{}, &tusk.Options{Queue: "q"}); err != nil {
			t.Fatal(err)
		}
	}
	var running, most, done atomic.Int32
	mux := tusk.NewMux()
	tusk.Handle(mux, func(ctx context.Context, _ *tusk.Task[sleep]) error {
		now := running.Add(1)
		for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
		}
		time.Sleep(5 * time.Millisecond)
		running.Add(-1)
		if done.Add(1) == all {
			cancel()
		}
		return nil
	})
	w, err := tusk.NewWorker(client, mux, &tusk.WorkerConfig{Queues: []string{"q"}, Concurrency: 20})
	if err != nil {
		t.Fatal(err)
	}
	stop := time.AfterFunc(3*time.Minute, cancel)
	defer stop.Stop()
	if err := w.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if most.Load() > 2 || done.Load() != all {
		t.Errorf("%d ran at a time, %d of %d are done", most.Load(), done.Load(), all)
	}
}
