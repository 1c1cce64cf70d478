package storetest

import (
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// envCommits says for how long users' transactions race with other ends of the same
// attempts, such as 5m. By default it is a number of rounds that takes a second or two.
const envCommits = "TUSK_TEST_COMMITS"

// commitRounds calls round often enough for a test, or for as long as envCommits says.
func commitRounds(t *T, n int, round func(r *rand.Rand)) {
	t.Helper()
	length, _ := time.ParseDuration(os.Getenv(envCommits)) // 0: not set
	r := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	for begun := time.Now(); !t.Failed() && (n > 0 || time.Since(begun) < length); n-- {
		round(r)
	}
}

// usersTx is a transaction of a user's that is about to end attempts.
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

// finishedInside is a user's transaction that has completed a task and is open.
func (t *T) finishedInside(task *store.Task) usersTx {
	t.Helper()
	u := t.usersTx()
	if lost, err := u.tx.Finish(t.ctx(), []store.Outcome{to(store.Completed, task)}); err != nil || len(lost) > 0 {
		t.Fatalf("finish inside: %v, %v", lost, err)
	}
	return u
}

// endBesides finishes attempts from outside, the last of which a user's transaction may be
// about to finish. As a worker does, it tries that one again alone until it is judged.
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

// accepted fails unless a task that a user's transaction completed, and that was failed
// from outside as well, had one of the two ends.
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
		t.Errorf("the task is %v with %d ends of its attempt, want %v; inside: %v, outside: %v", got.State, ends, want, inside, outside)
	}
}

var raceCommitClauses = []clause{
	// The handler saw its commit fail while it was under way, or its leader took its
	// worker for dead: the same attempt is ended twice, and one of the two has to lose.
	// How long a finish takes is measured, so that commits meet it anywhere.
	{"race/a commit with a finish in it meets another end of the same attempt: one is accepted", func(t *T) {
		t.transactor()
		worker, other := t.worker(), t.another()
		took := 5 * time.Millisecond
		commitRounds(t, 12, func(r *rand.Rand) {
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
			t.clear(worker, "q")
		})
	}},
	{"race/a finish inside a transaction begins as another end of the attempt is written: one is accepted", func(t *T) {
		t.transactor()
		worker, other := t.worker(), t.another()
		took := time.Millisecond
		commitRounds(t, 25, func(r *rand.Rand) {
			t.addMany(3)
			tasks := t.take(worker, 3)
			var beside usersTx // it keeps the lease from being closed as a whole
			if !t.engine.OneWriter {
				beside = t.finishedInside(&tasks[0])
			}
			u := t.usersTx()
			var outside bool
			var both sync.WaitGroup
			wait := time.Duration(r.Int64N(int64(took)))
			both.Go(func() {
				time.Sleep(wait)
				outside = t.endBesides(other, []store.Outcome{failed(&tasks[1], store.Available, "worker died")})
			})
			began := time.Now()
			lost, err := u.tx.Finish(t.ctx(), []store.Outcome{to(store.Completed, &tasks[1])})
			took = (3*took + min(time.Since(began), 20*time.Millisecond)) / 4
			inside := err == nil && len(lost) == 0
			if inside {
				err = u.commit()
				inside = err == nil
			} else {
				_ = u.rollback()
			}
			both.Wait()
			if err != nil && (t.engine.TakenBack == nil || !t.engine.TakenBack(err)) {
				t.Fatalf("inside: %v", err)
			}
			t.accepted(&tasks[1], inside, outside)
			if beside.rollback != nil && beside.rollback() != nil {
				t.Fatal("rollback")
			}
			t.clear(worker, "q")
		})
	}},
}
