package postgres_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
	"github.com/tuskqueue/tusk/store/storetest/wires"
)

// hears listens until the test is over, and passes on hints after the first, empty one has come.
func hears(t *testing.T, s *postgres.Store) chan store.Hint {
	t.Helper()
	hints := make(chan store.Hint, 10000)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Listen(ctx, func(h store.Hint) { hints <- h }) }()
	t.Cleanup(func() { cancel(); <-ended })
	<-hints
	return hints
}

// await reads hints until one is as wanted.
func await(t *testing.T, hints chan store.Hint, want func(store.Hint) bool) {
	t.Helper()
	for late := time.After(10 * time.Second); ; {
		select {
		case h := <-hints:
			if want(h) {
				return
			}
		case <-late:
			t.Fatal("nobody is told")
		}
	}
}

func ofQueues(h store.Hint) bool { return len(h.Queues) > 0 }

// neighbours are two processes on one database: one that enqueues and has a worker, and another one.
func neighbours(t *testing.T) (s, other *postgres.Store, own, others chan store.Hint) {
	t.Helper()
	s, pool := fresh(t)
	other, _ = open(t, pool.Config().ConnString(), false)
	return s, other, hears(t, s), hears(t, other)
}

// startUnhurried starts a worker that may leave so much time between two claims.
func startUnhurried(t *testing.T, s *postgres.Store, every time.Duration) store.ID {
	t.Helper()
	w := store.Worker{ID: newID(), Host: "here", Queues: []string{"q"}, Concurrency: 10, ClaimEvery: every}
	if _, err := s.Extend(t.Context(), store.Beat{Worker: w, TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	return w.ID
}

// runsOne claims a task and completes it.
func runsOne(t *testing.T, s store.Store, worker store.ID) {
	t.Helper()
	if _, err := s.Finish(context.Background(), completed(claimsOne(t, s, worker))); err != nil {
		t.Fatal(err)
	}
}

func claimsOne(t *testing.T, s store.Store, worker store.ID) []store.Task {
	t.Helper()
	return claimsBesides(t, s, worker, 0)
}

// claimsBesides claims a task for a worker that already runs some.
func claimsBesides(t *testing.T, s store.Store, worker store.ID, running int) []store.Task {
	t.Helper()
	tasks, err := s.Claim(context.Background(), store.ClaimRequest{
		Worker: worker, Token: store.NewToken(), Queues: []string{"q"}, Limit: 1, Running: running})
	if err != nil || len(tasks) != 1 {
		t.Fatalf("claimed %d: %v", len(tasks), err)
	}
	return tasks
}

func TestOthersAreNotToldOfWhatAWorkerOfTheProcessTakes(t *testing.T) {
	s, _, own, others := neighbours(t)
	worker := startWorker(t, s)
	for range 10 {
		for taken := false; !taken; { // a busy machine may claim late, and then others are told
			if _, err := s.Enqueue(t.Context(), newTasks(1, "q")); err != nil {
				t.Fatal(err)
			}
			await(t, own, ofQueues)
			runsOne(t, s, worker)
			select {
			case <-others:
				time.Sleep(s.Rest("q")) // nothing is offered for this time
			case <-time.After(50 * time.Millisecond):
				taken = true
			}
		}
	}
	if n := s.Expected(); n > 0 {
		t.Errorf("%d tasks are expected still", n)
	}
}

// The server is far away: each claim takes more than the usual patience. A process that knows it waits for longer.
func TestPatienceFollowsHowLongClaimsTake(t *testing.T) {
	_, pool := fresh(t)
	_, far := wires.Start(t, pool.Config().ConnString(), func(*wires.Wire) wires.Pass {
		return func(piece []byte, up bool) ([]byte, bool) {
			if up {
				time.Sleep(10 * time.Millisecond)
			}
			return piece, true
		}
	})
	s, _ := open(t, far, false)
	other, _ := open(t, pool.Config().ConnString(), false)
	own, others := hears(t, s), hears(t, other)
	worker := startWorker(t, s)
	for range 5 { // it learns how long claims take
		_, err := s.Claim(t.Context(), store.ClaimRequest{
			Worker: worker, Token: store.NewToken(), Queues: []string{"q"}, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
	}
	for try := 0; ; try++ { // a busy machine may claim late
		if _, err := s.Enqueue(t.Context(), newTasks(1, "q")); err != nil {
			t.Fatal(err)
		}
		await(t, own, ofQueues)
		runsOne(t, s, worker)
		select {
		case <-others:
			if try == 20 {
				t.Fatal("others are told of each task")
			}
			time.Sleep(s.Rest("q")) // nothing is offered for this time
		case <-time.After(50 * time.Millisecond):
			return
		}
	}
}

func TestOthersAreToldOfWhatNobodyOfTheProcessTakes(t *testing.T) {
	s, _, own, others := neighbours(t)
	startWorker(t, s)
	for range 3 {
		if _, err := s.Enqueue(t.Context(), newTasks(1, "q")); err != nil {
			t.Fatal(err)
		}
		await(t, own, ofQueues)
		await(t, others, ofQueues)
	}
	if _, err := s.Enqueue(t.Context(), newTasks(100, "many")); err != nil {
		t.Fatal(err)
	}
	await(t, others, ofQueues)
	for deadline := time.Now().Add(10 * time.Second); s.Expected() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d tasks are expected still", s.Expected())
		}
	}
}

func TestOthersAreToldAtOnceWhereTheProcessHasEnoughToDo(t *testing.T) {
	s, other, _, others := neighbours(t)
	worker := startWorker(t, s)
	startWorker(t, other)
	s.CountWorkers("q")
	for i := range runtime.GOMAXPROCS(0) {
		if _, err := s.Enqueue(t.Context(), newTasks(1, "q")); err != nil {
			t.Fatal(err)
		}
		claimsBesides(t, s, worker, i)
	}
	if _, err := s.Enqueue(t.Context(), newTasks(1, "q")); err != nil {
		t.Fatal(err)
	}
	if n := s.Expected(); n > 0 {
		t.Errorf("%d tasks are offered to a process that runs as many as it has processors", n)
	}
	await(t, others, ofQueues)
}

func TestNobodyIsToldOfTasksOfAQueueThatOnlyTheProcessServes(t *testing.T) {
	s, other, _, others := neighbours(t)
	worker := startUnhurried(t, s, time.Minute)
	s.CountWorkers("q")
	for i := range runtime.GOMAXPROCS(0) + 3 {
		if _, err := s.Enqueue(t.Context(), newTasks(1, "q")); err != nil {
			t.Fatal(err)
		}
		if n := s.Expected(); n != 1 {
			t.Errorf("%d tasks are offered, want the one of the only worker, which runs %d", n, i)
		}
		claimsBesides(t, s, worker, i)
	}
	select {
	case h := <-others:
		t.Errorf("another process is told of %v", h.Queues)
	case <-time.After(50 * time.Millisecond):
	}
	startWorker(t, other)
	s.CountWorkers("q")
	if _, err := s.Enqueue(t.Context(), newTasks(1, "q")); err != nil {
		t.Fatal(err)
	}
	await(t, others, ofQueues)
}

func TestAWorkerHasTheTimeBetweenItsClaimsToTakeATask(t *testing.T) {
	s, _, own, others := neighbours(t)
	startUnhurried(t, s, 300*time.Millisecond)
	began := time.Now()
	if _, err := s.Enqueue(t.Context(), newTasks(1, "q")); err != nil {
		t.Fatal(err)
	}
	await(t, own, ofQueues)
	await(t, others, ofQueues)
	if d := time.Since(began); d < 300*time.Millisecond {
		t.Errorf("others are told after %v, while the worker may still claim", d)
	}
}

func TestOthersAreToldAtOnceOfQueuesThatNoWorkerOfTheProcessServes(t *testing.T) {
	s, _, _, others := neighbours(t)
	startWorker(t, s)
	if _, err := s.Enqueue(t.Context(), newTasks(1, "other")); err != nil {
		t.Fatal(err)
	}
	if n := s.Expected(); n > 0 {
		t.Errorf("%d tasks of a queue are offered to a worker of another", n)
	}
	await(t, others, ofQueues)
}

func TestATaskOfAUsersTransactionIsOfferedOnceItIsLikelyToBeThere(t *testing.T) {
	s, pool := fresh(t)
	own := hears(t, s)
	other, _ := open(t, pool.Config().ConnString(), false)
	others, worker := hears(t, other), startWorker(t, s)
	store1 := func() func(context.Context) error { return storeInside(t, s, pool).Commit }
	commit := store1()
	if err := commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, own, ofQueues)
	runsOne(t, s, worker)

	store1() // it is never committed
	await(t, own, ofQueues)
	await(t, others, ofQueues)
	for deadline := time.Now().Add(10 * time.Second); s.Expected() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d tasks are expected still", s.Expected())
		}
	}
}

// storeInside stores a task in a user's transaction.
func storeInside(t *testing.T, s *postgres.Store, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx := begin(t, pool)
	inside := txOf(t, s, tx)
	if _, err := inside.Enqueue(t.Context(), newTasks(1, "q")); err != nil {
		t.Fatal(err)
	}
	return tx
}

// TestOffersFollowHowLongUsersTransactionsLast commits after the first offer, which is then too early, and afterwards
// at once.
func TestOffersFollowHowLongUsersTransactionsLast(t *testing.T) {
	s, pool := fresh(t)
	own, worker := hears(t, s), startWorker(t, s)
	run := func(commit func(pgx.Tx)) time.Duration {
		commit(storeInside(t, s, pool))
		await(t, own, ofQueues)
		runsOne(t, s, worker)
		for deadline := time.Now().Add(10 * time.Second); s.Expected() > 0; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("a task that was claimed is expected still")
			}
		}
		return s.CommitAfter()
	}
	at := func(tx pgx.Tx) {
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	before, late := s.CommitAfter(), time.Duration(0)
	for range 20 {
		late = run(func(tx pgx.Tx) { await(t, own, ofQueues); at(tx) })
	}
	if late <= before {
		t.Errorf("after transactions that lasted longer, tasks are offered after %s, before after %s", late, before)
	}
	for deadline := time.Now().Add(30 * time.Second); run(at) >= late; {
		if time.Now().After(deadline) {
			t.Fatal("transactions that last less do not make offers come sooner")
		}
	}
}

func TestWhoeverLeadsInTheProcessIsToldWithoutTheOthers(t *testing.T) {
	s, _, own, others := neighbours(t)
	by := store.Candidate{ID: newID(), TTL: time.Minute}
	led, err := s.Lead(t.Context(), by)
	if err != nil {
		t.Fatal(err)
	}
	by.Term = led.Term
	if _, err := s.Oversee(t.Context(), by); err != nil {
		t.Fatal(err)
	}
	tasks := newTasks(1, "q")
	tasks[0].Turn = true
	if _, err := s.Enqueue(t.Context(), tasks); err != nil {
		t.Fatal(err)
	}
	await(t, own, func(h store.Hint) bool { return h.Turns })
	select {
	case h := <-others:
		t.Errorf("another process was told of %+v", h)
	case <-time.After(300 * time.Millisecond):
	}
}

func TestWhatIsOfferedIsToldToOthersBeforeTheEnd(t *testing.T) {
	s, _, _, others := neighbours(t)
	startWorker(t, s)
	if _, err := s.Enqueue(t.Context(), newTasks(1, "q")); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	await(t, others, ofQueues)
}

func TestWhatAUsersTransactionStoredIsToldBeforeTheEnd(t *testing.T) {
	s, pool := fresh(t)
	others := hears(t, s)
	brief, own := open(t, pool.Config().ConnString(), false)
	for range 3 {
		tx, err := own.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		inside, err := brief.Tx(tx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := inside.Enqueue(t.Context(), newTasks(1, "q")); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := brief.Close(); err != nil {
		t.Fatal(err)
	}
	await(t, others, ofQueues)
}
