package ledgers_test

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
	"github.com/tuskqueue/tusk/store/postgres"
	"github.com/tuskqueue/tusk/store/storetest/wires"
)

// held is a store whose second server answers late.
type held struct {
	*ledgers.Store
	dsns    []string     // of the servers, without delay
	through string       // the DSN of the second server, with delay
	wait    atomic.Int64 // nanoseconds that each answer is held
	silent  atomic.Bool  // answers are held until this is false
	opened  atomic.Int64 // connections so far

	word atomic.Pointer[[]byte] // answers on connections that have sent this are held until it is nil
}

// heldAnswers opens a store with ledgers on two servers, the second of which answers late.
func heldAnswers(t *testing.T, number int) *held {
	t.Helper()
	_, dsns := servers(t, 2)
	if err := divide(number, dsns...); err != nil {
		t.Fatal(err)
	}
	h := &held{dsns: dsns}
	_, h.through = wires.Start(t, dsns[1], func(*wires.Wire) wires.Pass {
		h.opened.Add(1)
		var stuck atomic.Bool
		return func(piece []byte, up bool) ([]byte, bool) {
			if word := h.word.Load(); up && word != nil && bytes.Contains(piece, *word) {
				stuck.Store(true)
			}
			if !up {
				time.Sleep(time.Duration(h.wait.Load()))
			}
			for h.silent.Load() || !up && stuck.Load() && h.word.Load() != nil {
				time.Sleep(time.Millisecond)
			}
			return piece, true
		}
	})
	t.Cleanup(func() { h.silent.Store(false); h.wait.Store(0); h.word.Store(nil) })
	h.Store = open(t, dsns[0], h.through)
	return h
}

// claimPromptly claims until the last answers of ledgers were prompt.
func claimPromptly(t *testing.T, s *ledgers.Store, w store.ID, numbers ...int) {
	t.Helper()
	eventually(t, "prompt answers", func() bool {
		claim(t, s, w, 100)
		return !slices.ContainsFunc(numbers, func(no int) bool { return !ledgers.IsPrompt(s, no) })
	})
}

// connect has the pool open several connections to the second server.
func (h *held) connect() {
	h.wait.Store(int64(50 * time.Millisecond))
	defer h.wait.Store(0)
	var done sync.WaitGroup
	for range 4 {
		done.Go(func() { _, _ = h.Count(context.Background()) })
	}
	done.Wait()
}

// A server falls silent while it is asked for tasks. The claim goes on with the other one. When the server is back, its
// task is handed back, and the attempt does not count.
func TestASilentServerDoesNotHoldUpClaims(t *testing.T) {
	h := heldAnswers(t, 2)
	s := h.Store
	w := worker(t, s)
	claimPromptly(t, s, w, 1)
	there := keyedInto(s, 1, nil)
	add(t, s, keyedInto(s, 0, nil), there)
	h.silent.Store(true)
	for _, within := range []time.Duration{4 * time.Second, time.Second} { // then it is not asked
		began := time.Now()
		if got := claim(t, s, w, 100); len(got) != 1 || got[0].ID == there.ID {
			t.Fatalf("claimed %d tasks, want that of the other server", len(got))
		}
		if took := time.Since(began); took > within {
			t.Errorf("a claim took %v", took)
		}
		if within > time.Second {
			add(t, s, keyedInto(s, 0, nil))
		}
	}
	h.silent.Store(false)
	var back []store.Task
	eventually(t, "the task of the silent server can be claimed", func() bool {
		back = claim(t, s, w, 100)
		return len(back) > 0
	})
	if back[0].ID != there.ID || back[0].Attempt != 1 {
		t.Errorf("attempt %d of %v, want 1 of %v", back[0].Attempt, back[0].ID, there.ID)
	}
	finish(t, s, store.Outcome{Task: &back[0], State: store.Completed, Attempt: 1})
}

// A server needs more than a second for each answer. Its tasks are not only handed back.
func TestTasksOfASlowServerAreClaimed(t *testing.T) {
	h := heldAnswers(t, 2)
	s := h.Store
	w := worker(t, s)
	claimPromptly(t, s, w, 1)
	h.connect()
	const tasks = 3
	for range tasks {
		add(t, s, keyedInto(s, 1, nil))
	}
	h.wait.Store(int64(1100 * time.Millisecond))
	got := 0
	eventually(t, "all of them are claimed", func() bool {
		got += len(claim(t, s, w, 1))
		return got == tasks
	})
}

// A worker signs off while an answer to its claim is in transit. The tasks in the answer are handed back first, so they
// do not count as crashed.
func TestTasksInALateAnswerDoNotCrashWhenTheWorkerSignsOff(t *testing.T) {
	h := heldAnswers(t, 2)
	other := open(t, h.dsns...)
	term := lead(t, other)
	w := worker(t, h)
	claimPromptly(t, h.Store, w, 1)
	there := keyedInto(h.Store, 1, nil)
	add(t, h, keyedInto(h.Store, 0, nil), there)
	r := store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 100, Token: store.NewToken()}
	word := r.Token[:]
	h.word.Store(&word)
	here, err := h.Claim(t.Context(), r)
	if err != nil || len(here) != 1 {
		t.Fatalf("claimed %d tasks, want that of the first server, %v", len(here), err)
	}
	finish(t, h, store.Outcome{Task: &here[0], State: store.Completed, Attempt: 1})
	left := make(chan error, 1)
	go func() {
		_, err := h.Extend(context.Background(), store.Beat{Worker: store.Worker{ID: w}})
		left <- err
	}()
	for range 10 {
		if tasks, err := other.Rescue(t.Context(), term, 100); err != nil || len(tasks) > 0 {
			t.Fatalf("%d tasks of the late answer were rescued, %v", len(tasks), err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	h.word.Store(nil)
	if err := <-left; err != nil {
		t.Error(err)
	}
	next := worker(t, other)
	var back []store.Task
	eventually(t, "the task can be claimed", func() bool {
		back = claim(t, other, next, 100)
		return len(back) > 0
	})
	if back[0].ID != there.ID || back[0].Attempt != 1 || back[0].Crashes != 0 {
		t.Errorf("attempt %d of %v after %d crashes, want attempt 1 of %v", back[0].Attempt, back[0].ID,
			back[0].Crashes, there.ID)
	}
}

// quiet opens a store that sends no notifications.
func quiet(t *testing.T, dsns ...string) *ledgers.Store {
	t.Helper()
	var pools []*pgxpool.Pool
	for _, dsn := range dsns {
		pool, _, err := postgres.Connect(t.Context(), dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		pools = append(pools, pool)
	}
	s, err := ledgers.New(t.Context(), pools, ledgers.Options{Quiet: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// While a server owes an answer, claims pass over it, which may use up a notification of tasks there. When it has
// answered, workers are woken again.
func TestWorkersAreWokenWhenASilentServerAnswers(t *testing.T) {
	h := heldAnswers(t, 2)
	h.Store = quiet(t, h.dsns[0], h.through)
	other := quiet(t, h.dsns...)
	w := worker(t, h)
	claimPromptly(t, h.Store, w, 1)
	add(t, other, keyedInto(other, 0, nil))
	h.silent.Store(true)
	if n := len(claim(t, h, w, 100)); n != 1 { // the second server had none when it was asked
		t.Fatalf("claimed %d tasks, want that of the first server", n)
	}
	woken := make(chan bool, 100)
	listening, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		_ = h.Listen(listening, func(hint store.Hint) {
			if slices.Equal(hint.Queues, []string{"q"}) {
				select {
				case woken <- true:
				default:
				}
			}
		})
	})
	defer done.Wait()
	defer cancel()
	eventually(t, "it listens", func() bool { return ledgers.Listens(h.Store) })
	add(t, other, keyedInto(other, 1, nil))
	if n := len(claim(t, h, w, 100)); n != 0 {
		t.Fatalf("claimed %d tasks of a server that owes an answer", n)
	}
	h.silent.Store(false)
	select {
	case <-woken:
	case <-time.After(10 * time.Second):
		t.Fatal("no worker was woken")
	}
	eventually(t, "the task can be claimed", func() bool { return len(claim(t, h, w, 100)) == 1 })
}

// One ledger of a server answers slowly. The other one of the server counts as prompt nonetheless.
func TestEachLedgerIsPromptByItself(t *testing.T) {
	_, dsns := servers(t, 2)
	if err := divide(4, dsns...); err != nil { // ledgers 2 and 3 on the second server
		t.Fatal(err)
	}
	s := open(t, dsns...)
	w := worker(t, s)
	claimPromptly(t, s, w, 2, 3)
	add(t, s, keyedInto(s, 2, nil), keyedInto(s, 3, nil))
	c, err := pgx.Connect(t.Context(), dsns[1])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	tx, err := c.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "lock table tusk_3_of_4.lane, tusk_3_of_4.lease"); err != nil {
		t.Fatal(err)
	}
	unlocked := make(chan error, 1)
	time.AfterFunc(700*time.Millisecond, func() { unlocked <- tx.Rollback(context.Background()) })
	claim(t, s, w, 100)
	if err := <-unlocked; err != nil {
		t.Fatal(err)
	}
	eventually(t, "only the locked ledger was slow", func() bool {
		return ledgers.IsPrompt(s, 2) && !ledgers.IsPrompt(s, 3)
	})
}

// A claim finds that a server is silent. All its ledgers are probed at once, so they are away at the same time.
func TestAllLedgersOfASilentServerAreProbed(t *testing.T) {
	h := heldAnswers(t, 4) // 2 and 3 on the second server
	w := worker(t, h)
	claimPromptly(t, h.Store, w, 2, 3)
	add(t, h, keyedInto(h.Store, 0, nil))
	h.silent.Store(true)
	claim(t, h, w, 100)
	for _, no := range []int{2, 3} {
		if !ledgers.IsProbed(h.Store, no) {
			t.Errorf("ledger %d is not probed", no)
		}
	}
}

// A server needs more than a second for each answer. The leader waits for it. If it cut connections instead, each call
// would first have to connect.
func TestTheLeaderCutsNoConnectionsToASlowServer(t *testing.T) {
	h := heldAnswers(t, 4)
	me := leader(t, h)
	chores := func() {
		t.Helper()
		if l, err := h.Lead(t.Context(), me); err != nil || l.Term != me.Term {
			t.Errorf("%+v, %v", l, err)
		}
		if c, err := h.Oversee(t.Context(), me); err != nil || c.Turns {
			t.Errorf("%+v, %v", c, err)
		}
		if _, err := h.Admit(t.Context(), me.Term, 100); err != nil {
			t.Error(err)
		}
	}
	h.connect()
	chores()
	before := h.opened.Load()
	h.wait.Store(int64(1050 * time.Millisecond))
	chores()
	if n := h.opened.Load() - before; n > 0 {
		t.Errorf("%d new connections", n)
	}
}

// A task ends, and a server that needs more than a second for each answer has a task that needs it. The call does not
// wait for that server, and cuts no connection to it.
func TestAnEndCutsNoConnectionsToASlowServer(t *testing.T) {
	h := heldAnswers(t, 2)
	other := open(t, h.dsns...)
	w := worker(t, h)
	parent := keyedInto(h.Store, 0, nil)
	child := keyedInto(h.Store, 1, needs(store.CancelOnFailure, parent.ID))
	add(t, h, parent)
	add(t, h, child)
	h.connect()
	tasks := claim(t, h, w, 1)
	if len(tasks) != 1 || tasks[0].ID != parent.ID {
		t.Fatalf("claimed %v, want %v", tasks, parent.ID)
	}
	before := ledgers.Conns(h.Store, 1)
	h.wait.Store(int64(1500 * time.Millisecond))
	began := time.Now()
	finish(t, h, store.Outcome{Task: &tasks[0], State: store.Completed, Attempt: 1})
	if took := time.Since(began); took > 2500*time.Millisecond {
		t.Errorf("the end took %v", took)
	}
	eventually(t, "the child hears of the end", func() bool { return stateOf(t, other, child.ID) != store.Pending })
	time.Sleep(2 * time.Second) // a connection that was cut would be closed by now
	if now := ledgers.Conns(h.Store, 1); now < before {
		t.Errorf("%d connections are left of %d", now, before)
	}
}
