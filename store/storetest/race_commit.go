package storetest

import (
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// envCommits says how long users' transactions race with other ends of the same attempts, such as 5m. The default is
// a number of rounds that takes a second or two.
const envCommits = "TUSK_TEST_COMMITS"

// commitRounds runs n rounds, and then more until the time in envCommits has passed.
func commitRounds(t *T, n int, round func(r *rand.Rand)) {
	t.Helper()
	length, _ := time.ParseDuration(os.Getenv(envCommits)) // 0 if not set
	r := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	for begun := time.Now(); !t.Failed() && (n > 0 || time.Since(begun) < length); n-- {
		round(r)
	}
}

// usersTx is a user's transaction that is about to end attempts.
type usersTx struct {
	tx       store.Tx
	commit   func() error
	rollback func() error
}

func (t *T) usersTx() usersTx {
	t.Helper()
	raw, commit, rollback := t.engine.Begin(t.TB, t.Store)
	tx, err := t.transactor().Tx(raw)
	if err != nil {
		t.Fatalf("tx: %v", err)
	}
	return usersTx{tx, commit, rollback}
}

// finishedInside returns an open user's transaction that has completed a task.
func (t *T) finishedInside(task *store.Task) usersTx {
	t.Helper()
	u := t.usersTx()
	if lost, err := u.tx.Finish(t.ctx(), []store.Outcome{to(store.Completed, task)}); err != nil || len(lost) > 0 {
		t.Fatalf("finish inside: %v, %v", lost, err)
	}
	return u
}

// endBesides finishes attempts from outside. A user's transaction may be about to finish the last one. Like a worker,
// it retries that one alone until its outcome is decided.
func (t *T) endBesides(s store.Store, outcomes []store.Outcome) (accepted bool) {
	last := outcomes[len(outcomes)-1]
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond) {
		lost, err := s.Finish(t.ctx(), outcomes)
		if err == nil {
			for _, id := range lost {
				if id != last.Task.ID {
					t.Errorf("another task was lost")
				}
			}
			return len(lost) == 0
		}
		if time.Now().After(end) {
			t.Errorf("finish: %v", err)
			return false
		}
		outcomes = []store.Outcome{last}
	}
}

// accepted fails unless exactly one end was accepted of a task that a user's transaction completed and that was
// failed from outside as well.
func (t *T) accepted(task *store.Task, inside, outside bool) {
	t.Helper()
	if inside == outside {
		t.Errorf("accepted inside the transaction: %v, and outside: %v", inside, outside)
	}
	want := store.Available
	if inside {
		want = store.Completed
	}
	got := t.get(task.ID)
	ends := 0
	for _, a := range got.Detail.Attempts {
		if a.Number == task.Attempt {
			ends++
		}
	}
	if got.State != want || inside && ends != 1 {
		t.Errorf("the task is %v with %d ends of its attempt, want %v; inside: %v, outside: %v", got.State, ends, want,
			inside, outside)
	}
}

// rest completes all tasks that can be claimed.
func (t *T) rest(worker store.ID) {
	t.Helper()
	for {
		tasks := t.take(worker, 100)
		if len(tasks) == 0 {
			return
		}
		for i := range tasks {
			t.mustEnd(to(store.Completed, &tasks[i]))
		}
	}
}

var raceCommitClauses = []clause{
	// A handler sees its commit fail while the commit is still in progress, or the leader takes the handler's worker
	// for dead. Then the same attempt is ended twice, and one of the two ends must lose. The clause measures how long
	// a finish takes, so that commits meet it at any point.
	{"race/a commit with a finish in it meets another end of the same attempt: one is accepted", func(t *T) {
		t.transactor()
		worker, other := t.worker(), t.another()
		took := 5 * time.Millisecond
		commitRounds(t, 8, func(r *rand.Rand) {
			n := []int{2, 20, 550}[r.IntN(3)]
			t.addMany(n)
			tasks := t.take(worker, n)
			if len(tasks) != n {
				t.Fatalf("claimed %d of %d", len(tasks), n)
			}
			last := &tasks[n-1]
			u := t.finishedInside(last)
			var committed error
			var both sync.WaitGroup
			wait := time.Duration(r.Int64N(int64(took + took/2)))
			both.Go(func() {
				time.Sleep(wait)
				committed = u.commit()
			})
			var outcomes []store.Outcome
			for i := range tasks[:n-1] {
				outcomes = append(outcomes, to(store.Completed, &tasks[i]))
			}
			outcomes = append(outcomes, failed(last, store.Available, "no answer"))
			began := time.Now()
			outside := t.endBesides(other, outcomes)
			took = (3*took + min(time.Since(began), 50*time.Millisecond)) / 4
			both.Wait()
			inside := committed == nil
			if !inside && (t.engine.TakenBack == nil || !t.engine.TakenBack(committed)) {
				t.Fatalf("commit: %v", committed)
			}
			t.accepted(last, inside, outside)
			t.rest(worker)
		})
	}},
	{"race/a finish inside a transaction begins as another end of the attempt is written: one is accepted", func(t *T) {
		t.transactor()
		const n = 20
		worker, other := t.worker(), t.another()
		took := time.Millisecond // how long the end from outside takes
		commitRounds(t, 2, func(r *rand.Rand) {
			t.addMany(n)
			tasks := t.take(worker, n)
			if len(tasks) != n {
				t.Fatalf("claimed %d of %d", len(tasks), n)
			}
			var beside usersTx // keeps the lease from being closed as a whole
			if !t.engine.OneWriter {
				beside = t.finishedInside(&tasks[0])
			}
			for i := range tasks[1:] {
				task, u := &tasks[i+1], t.usersTx()
				var outside bool
				var last time.Duration
				var both sync.WaitGroup
				both.Go(func() {
					began := time.Now()
					outside = t.endBesides(other, []store.Outcome{failed(task, store.Available, "worker died")})
					last = time.Since(began)
				})
				time.Sleep(time.Duration(r.Int64N(int64(took + took/4))))
				lost, err := u.tx.Finish(t.ctx(), []store.Outcome{to(store.Completed, task)})
				inside := err == nil && len(lost) == 0
				if inside {
					err = u.commit()
					inside = err == nil
				} else {
					_ = u.rollback()
				}
				both.Wait()
				took = (3*took + min(last, 20*time.Millisecond)) / 4
				if err != nil && (t.engine.TakenBack == nil || !t.engine.TakenBack(err)) {
					t.Fatalf("inside: %v", err)
				}
				t.accepted(task, inside, outside)
			}
			if beside.rollback != nil && beside.rollback() != nil {
				t.Fatal("rollback")
			}
			t.mustEnd(to(store.Completed, &tasks[0]))
			t.rest(worker)
		})
	}},
}
