package postgres_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// TestATransactionOlderThanAPackMayPutItsTaskBack is like the test of a single task: among the rows of a task, the
// one of the latest transaction counts.
func TestATransactionOlderThanAPackMayPutItsTaskBack(t *testing.T) {
	s, pool := fresh(t)
	ctx := t.Context()
	w, term := startWorker(t, s), lead(t, s)
	old := beginWriting(t, pool)
	tasks := newPacks(100, "q")
	if _, err := s.Enqueue(ctx, tasks); err != nil {
		t.Fatal(err)
	}
	claimed := claimSome(t, s, w, 100)
	u := txOf(t, s, old)
	back := store.Outcome{Task: &claimed[7], State: store.Available, Attempt: claimed[7].Attempt}
	if lost, err := u.Finish(ctx, []store.Outcome{back}); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	if err := old.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Admit(ctx, term, 10); err != nil {
		t.Fatal(err)
	}
	moved, err := s.Edit(ctx, store.Edit{IDs: []store.ID{tasks[7].ID, tasks[7].ID},
		Change: store.Change{Op: store.Reprioritize, Priority: 5}})
	if err != nil || moved[0].Result != store.Changed {
		t.Fatal(moved, err)
	}
	again := claimOne(t, s, w)
	if again.ID != tasks[7].ID || again.Attempt != 2 || again.Priority != 5 {
		t.Fatalf("claimed %+v", again)
	}
	finish(t, s, []store.Task{again})
	list, err := s.List(ctx, store.Filter{IDs: []store.ID{tasks[7].ID}})
	if err != nil || len(list) != 1 || list[0].State != store.Completed || list[0].Attempt != 2 {
		t.Fatalf("%+v, %v: want the completed task", list, err)
	}
}

// TestTasksOfOnePackGoTheirWays changes some tasks of packs, which are available, running or finished, and checks
// that each is in the right state and exists once.
func TestTasksOfOnePackGoTheirWays(t *testing.T) {
	s, pool := fresh(t)
	ctx := t.Context()
	w, term := startWorker(t, s), lead(t, s)
	tasks := newPacks(256, "q")
	ids := idsOf(tasks)
	if _, err := s.Enqueue(ctx, tasks); err != nil {
		t.Fatal(err)
	}
	claim := func(limit, want int) []store.Task {
		t.Helper()
		list, err := s.Claim(ctx, store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: limit, Token: store.NewToken()})
		if err != nil || len(list) != want {
			t.Fatal(len(list), err)
		}
		return list
	}
	edit := func(c store.Change, result store.EditResult, which ...store.ID) {
		t.Helper()
		done, err := s.Edit(ctx, store.Edit{IDs: which, Change: c})
		if err != nil {
			t.Fatal(err)
		}
		for i := range done {
			if done[i].Result != result {
				t.Fatalf("%v of task %d: %v", c.Op, i, done[i])
			}
		}
	}
	want := slices.Repeat([]store.State{store.Available}, 256)
	set := func(state store.State, from, to int) {
		for i := from; i < to; i++ {
			want[i] = state
		}
	}
	agree := func(what string) {
		t.Helper()
		for i, state := range states(t, s, ids) {
			if state != want[i] {
				t.Fatalf("%s: task %d is %v, want %v", what, i, state, want[i])
			}
		}
		for _, state := range []store.State{store.Available, store.Running} {
			list, err := s.List(ctx, store.Filter{States: []store.State{state}, Limit: 1000})
			counts, other := s.Count(ctx)
			n := 0
			for _, is := range want {
				if is == state {
					n++
				}
			}
			var counted int64
			for _, c := range counts {
				if c.State == state {
					counted += c.Tasks
				}
			}
			if err != nil || other != nil || len(list) != n || counted != int64(n) {
				t.Fatalf("%s: %d are listed as %v, and %d counted, want %d: %v, %v", what, len(list), state, counted, n, err, other)
			}
		}
	}
	running := claim(10, 10) // of the first pack
	set(store.Running, 0, 10)
	agree("claimed a part")
	before := number(t, pool, packs)
	edit(store.Change{Op: store.Cancel, Reason: "no"}, store.Changed, ids[20])
	want[20] = store.Cancelled
	agree("cancelled one of what was left")
	if after := number(t, pool, packs); after != before-1 {
		t.Errorf("%d packs became %d, want one less", before, after)
	}
	if n := len(claim(5, 5)); n > 0 {
		set(store.Running, 10, 15)
	}
	agree("claimed on in rows")
	outcomes := completed(running)
	outcomes[1].State, outcomes[1].Error, outcomes[1].Fingerprint, outcomes[1].Delay = store.Retryable, "x", "f", time.Hour
	outcomes[2].State, outcomes[2].Reason = store.Discarded, "no"
	outcomes[3].State, outcomes[3].Attempt = store.Available, 0
	if lost, err := s.Finish(ctx, outcomes[:5]); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	want[0], want[1], want[2], want[3], want[4] = store.Completed, store.Retryable, store.Discarded, store.Available,
		store.Completed
	agree("finished some")
	edit(store.Change{Op: store.Retry}, store.Changed, ids[0], ids[2])
	want[0], want[2] = store.Available, store.Available
	agree("ran some again")
	if err := s.Maintain(ctx, term); err != nil {
		t.Fatal(err)
	}
	agree("counted")
	edit(store.Change{Op: store.Move, Queue: "elsewhere"}, store.Changed, ids[60:70]...) // of two packs
	agree("moved some")
	edit(store.Change{Op: store.Delete}, store.Changed, ids[128], ids[191])
	want[128], want[191] = 0, 0
	edit(store.Change{Op: store.Reschedule, Delay: time.Hour}, store.Changed, ids[200:203]...)
	set(store.Scheduled, 200, 203)
	edit(store.Change{Op: store.Cancel}, store.Requested, ids[5])
	agree("changed some of the last pack")
	if err := s.Maintain(ctx, term); err != nil {
		t.Fatal(err)
	}
	agree("counted again")
	rest := claim(1000, 256-15-1-2-3-10+3)
	for i := range want {
		if want[i] == store.Available && (i < 60 || i >= 70) {
			want[i] = store.Running
		}
	}
	agree("claimed what was left")
	if _, err := pool.Exec(ctx, "update tusk.worker set expires_at = '2000-01-01'"); err != nil {
		t.Fatal(err)
	}
	saved, err := s.Rescue(ctx, term, 1000)
	if err != nil || len(saved) != len(rest)+5+5 {
		t.Fatal(len(saved), err)
	}
	seen := map[store.ID]bool{}
	for i := range saved {
		at := slices.Index(ids, saved[i].ID)
		if seen[saved[i].ID] || at < 0 || !bytes.Equal(saved[i].Args, tasks[at].Args) {
			t.Fatalf("rescued %+v", saved[i])
		}
		seen[saved[i].ID] = true
	}
	finish(t, s, saved)
	for i := range want {
		if want[i] == store.Running {
			want[i] = store.Completed
		}
	}
	agree("finished for the dead")
}

// TestEditsAndClaimsOfOnePackAtOnce lets several workers claim parts of packs while others change tasks of them.
// Each task ends in one way.
func TestEditsAndClaimsOfOnePackAtOnce(t *testing.T) {
	s, pool := fresh(t)
	ctx := t.Context()
	w := startWorker(t, s)
	tasks := newPacks(2000, "q")
	ids := idsOf(tasks)
	if _, err := s.Enqueue(ctx, tasks); err != nil {
		t.Fatal(err)
	}
	before := number(t, pool, packs)
	type end struct {
		ids []store.ID
		err error
	}
	ends := make(chan end)
	var editing atomic.Int32
	editing.Store(3)
	claims := func() (e end) {
		for empty := 0; empty < 200 && e.err == nil; empty++ { // no claim waits for an edit, so it may find nothing
			if editing.Load() > 0 {
				empty = 0
			}
			list, err := s.Claim(ctx, store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 17, Token: store.NewToken()})
			if err != nil {
				return end{err: err}
			}
			if len(list) == 0 {
				time.Sleep(time.Millisecond)
				continue
			}
			empty = 0
			for i := range list {
				e.ids = append(e.ids, list[i].ID)
			}
			_, e.err = s.Finish(ctx, completed(list))
		}
		return e
	}
	cancels := func(r *rand.Rand) (e end) {
		defer editing.Add(-1)
		for range 40 {
			at := r.IntN(len(ids) - 5)
			done, err := s.Edit(ctx, store.Edit{IDs: ids[at : at+1+r.IntN(4)], Change: store.Change{Op: store.Cancel}})
			if err != nil && !errors.As(err, new(*store.HeldError)) { // on a busy machine, a lane may be held for long
				return end{err: err}
			}
			for i := range done {
				if done[i].Result == store.Changed {
					e.ids = append(e.ids, done[i].ID)
				}
			}
		}
		return e
	}
	for i := range 3 {
		go func() { ends <- claims() }()
		go func() { ends <- cancels(rand.New(rand.NewPCG(5, uint64(i)))) }() //nolint:gosec // made up
	}
	ended := map[store.ID]int{}
	for range 6 {
		e := <-ends
		if e.err != nil {
			t.Fatal(e.err)
		}
		for _, id := range e.ids {
			ended[id]++
		}
	}
	for i, id := range ids {
		if ended[id] != 1 {
			t.Errorf("task %d ended %d times", i, ended[id])
		}
	}
	if after := number(t, pool, packs); after >= before {
		t.Errorf("of %d packs %d are whole", before, after)
	}
	if counts, err := s.Count(ctx); err != nil || len(counts) > 0 {
		t.Error(counts, err)
	}
}

// TestATaskThatNeedsOneOfAPackIsSetFree lets children of a task in a pack wait for its end, whatever its outcome
// is.
func TestATaskThatNeedsOneOfAPackIsSetFree(t *testing.T) {
	s, pool := fresh(t)
	ctx := t.Context()
	w, term := startWorker(t, s), lead(t, s)
	tasks := newPacks(64, "q")
	if _, err := s.Enqueue(ctx, tasks); err != nil {
		t.Fatal(err)
	}
	children := newTasks(4, "children")
	for i := range children {
		children[i].Needs = []store.Need{{Task: tasks[10*i].ID}}
	}
	if _, err := s.Enqueue(ctx, children); err != nil {
		t.Fatal(err)
	}
	if n := number(t, pool, "select count(*) from tusk.doubt"); n > 0 {
		t.Errorf("%d needs of tasks in a pack are in doubt", n)
	}
	if _, err := s.Edit(ctx, store.Edit{IDs: []store.ID{tasks[30].ID},
		Change: store.Change{Op: store.Cancel}}); err != nil {
		t.Fatal(err)
	}
	list := claimSome(t, s, w, 20)
	outcomes := completed(list)
	outcomes[10].State, outcomes[10].Error, outcomes[10].Fingerprint, outcomes[10].Delay = store.Retryable, "x",
		"f", time.Hour
	if _, err := s.Finish(ctx, outcomes); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Admit(ctx, term, 100); err != nil {
		t.Fatal(err)
	}
	want := []store.State{store.Available, store.Pending, store.Pending, store.Cancelled}
	if got := states(t, s, idsOf(children)); !slices.Equal(got, want) {
		t.Errorf("the children are %v, want %v", got, want)
	}
}
