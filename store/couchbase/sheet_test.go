package couchbase

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// A task in batches of a hundred takes 0.3 requests in its whole life.
func TestRequestsOfATaskOfASheet(t *testing.T) {
	r := newRig(t, 1)
	r.a.sums.every = time.Hour
	cycle := func() {
		tasks := r.alike(100)
		_, err := r.a.Enqueue(r.ctx(), tasks)
		r.must("enqueue", err)
		r.must("claim", r.lend(r.ctx(), 100))
		var names []string
		for i := range tasks {
			names = append(names, fmt.Sprintf("s%d", i))
		}
		r.must("finish", r.finish(r.ctx(), r.plainly(names...)...))
	}
	cycle() // creates the lane
	before, queries := r.f.Requests(), r.f.Queries()
	for range 10 {
		cycle()
	}
	n := float64(r.f.Requests()-before) / 1000
	if n > 0.3 || r.f.Queries() > queries {
		t.Errorf("a task took %.2f requests, and all %d queries", n, r.f.Queries()-queries)
	}
	t.Logf("a task: %.2f requests", n)
}

// A worker that has lost its lease of a run cannot end any task of it.
func TestAStaleRunIsRefused(t *testing.T) {
	r := newRig(t, 1)
	r.lentSheet()
	r.beat(r.b, r.worker, time.Nanosecond)
	dead, err := r.b.Rescue(r.ctx(), r.term, 100)
	r.must("rescue", err)
	if len(dead) != 10 {
		t.Fatalf("%d are rescued", len(dead))
	}
	for i := range dead[:6] {
		r.end(&dead[i], store.Available)
	}
	lost, err := r.a.Finish(r.ctx(), r.plainly(named10()...))
	r.must("finish", err)
	if len(lost) != 6 {
		t.Errorf("%d of 6 are refused", len(lost))
	}
	if lost, err = r.a.Finish(r.ctx(), r.plainly(named10()...)); err != nil || len(lost) != 10 {
		t.Errorf("again %d of 10 are refused: %v", len(lost), err)
	}
	r.drain()
	r.all(true, named10()...)
}

// A block has one sheet. If another call already has it, a call stores its tasks separately, and appends them as usual.
func TestTwoCallsOfABlock(t *testing.T) {
	r := newRig(t, 1)
	tasks := r.alike(20)
	r.add(tasks[:10]...)
	r.add(tasks[:10]...) // the answer was lost
	r.add(tasks[10:]...)
	r.must("claim", r.lend(r.ctx(), 100))
	if len(r.held) != 20 {
		t.Fatalf("%d of 20 are claimed", len(r.held))
	}
	r.must("finish", r.finish(r.ctx(), r.plainly(named10()...)...))
	r.drain()
	r.all(true, append(named10(), "s10", "s19")...)
}

// An archiver that continued after another one had been killed met a sheet twice: as the index knew it, and as the
// index had known it before some of the sheet's tasks were deleted. So the rest came twice into one batch.
func TestASheetIsHandedOverOnlyAsTheIndexKnowsIt(t *testing.T) {
	r := newRig(t, 1)
	r.lentSheet()
	r.must("finish", r.finish(r.ctx(), r.plainly("s0", "s1", "s2", "s3", "s4", "s5")...))
	time.Sleep(5 * time.Millisecond)
	r.must("finish", r.finish(r.ctx(), r.plainly("s6", "s7", "s8", "s9")...))
	later, err := r.b.List(r.ctx(), store.Filter{IDs: []store.ID{r.ids["s6"], r.ids["s7"], r.ids["s8"], r.ids["s9"]}})
	r.must("list", err)
	keep := store.Retention{Completed: time.Microsecond}
	c := r.b.classes(r.ctx(), &keep)[0]
	found, err := r.b.ended(r.ctx(), &c, 0, c.until, 100)
	r.must("ended", err)
	if back, err := r.a.Release(r.ctx(), rules.Receipt(later)); err != nil || len(later) != 4 || len(back) > 0 {
		t.Fatalf("of %d tasks %d have come back: %v", len(later), len(back), err)
	}
	if ends, err := r.b.endings(r.ctx(), found); err != nil || len(found) != 1 || len(ends) > 0 {
		t.Errorf("%d tasks of %d sheets are handed over as they were: %v", len(ends), len(found), err)
	}
	due, err := r.b.Due(r.ctx(), keep, "", 100)
	r.must("due", err)
	if len(due.Tasks) != 6 {
		t.Errorf("%d tasks are handed over, want 6", len(due.Tasks))
	}
}

// Tasks that are changed alike stay in their sheet, and are listed, run, cancelled, retried and pruned like others.
func TestASheetIsChangedAsAWhole(t *testing.T) {
	r := newRig(t, 1)
	tasks := r.alike(10)
	r.add(tasks...)
	var ids []store.ID
	for i := range tasks {
		ids = append(ids, tasks[i].ID)
	}
	change := func(ids []store.ID, c store.Change) {
		t.Helper()
		edited, err := r.b.Edit(r.ctx(), store.Edit{IDs: ids, Change: c})
		r.must("edit", err)
		for _, e := range edited {
			if e.Result != store.Changed {
				t.Fatalf("%v: %+v", c.Op, e)
			}
		}
	}
	list := func(state store.State, want int) []store.Task {
		t.Helper()
		all, err := r.b.List(r.ctx(), store.Filter{States: []store.State{state}, Detail: true})
		r.must("list", err)
		if len(all) != want {
			t.Fatalf("%d of %d are %v", len(all), want, state)
		}
		return all
	}
	change(ids, store.Change{Op: store.Reprioritize, Priority: 5})
	change(ids, store.Change{Op: store.Move, Queue: "q2"})
	change(ids, store.Change{Op: store.Move, Queue: "q"})
	for _, is := range list(store.Available, 10) {
		if is.Priority != 5 || is.Queue != "q" || is.Detail.Changed == nil {
			t.Errorf("it is %+v", is)
		}
	}
	if sh := r.sheet(); sh == nil || sh.N != 10 || sh.Priority != 5 {
		t.Fatalf("the sheet is %+v", sh)
	}
	r.must("claim", r.lend(r.ctx(), 3))
	if len(r.held) != 3 {
		t.Fatalf("%d of 3 are claimed", len(r.held))
	}
	r.must("finish", r.finish(r.ctx(), r.plainly("s0", "s1", "s2")...))
	change(ids[3:], store.Change{Op: store.Cancel, Reason: "because"}) // others have run: these move out
	if sh := r.sheet(); sh == nil || sh.State != "c" || len(sh.lots) != 10 {
		t.Errorf("the sheet is %+v", sh)
	}
	for _, is := range list(store.Cancelled, 7) {
		if is.Reason != "because" || is.FinishedAt.IsZero() || is.Attempt != 0 {
			t.Errorf("it is %+v", is)
		}
	}
	others := r.alike(10)
	r.add(others...)
	ids = nil
	for i := range others {
		ids = append(ids, others[i].ID)
	}
	change(ids, store.Change{Op: store.Cancel, Reason: "all"})
	if sh := r.sheet(); sh == nil || sh.State != "x" || sh.N != 0 || sh.Finished == 0 {
		t.Fatalf("the sheet is %+v", sh)
	}
	why := map[string]int{}
	for _, is := range list(store.Cancelled, 17) {
		why[is.Reason]++
	}
	if why["because"] != 7 || why["all"] != 10 {
		t.Errorf("they were cancelled %v", why)
	}
	change(ids[:2], store.Change{Op: store.Retry})
	list(store.Available, 2)
	list(store.Cancelled, 15)
	time.Sleep(2 * time.Millisecond)
	if n, err := r.b.Prune(r.ctx(), r.term, store.Retention{Cancelled: time.Microsecond}, 100); err != nil || n != 15 {
		t.Errorf("%d of 15 are pruned: %v", n, err)
	}
	if r.sheet() != nil {
		t.Error("the sheet is still there")
	}
	if got := r.claimAll(10); len(got) != 2 {
		t.Errorf("%d of 2 are claimed", len(got))
	}
}

// What a sheet says of its tasks, including in the index, is what documents of their own would say.
func TestASheetIsReadAsItsTasks(t *testing.T) {
	r := newRig(t, 1)
	r.add(r.alike(10)...)
	r.must("claim", r.lend(r.ctx(), 6))
	r.must("finish", r.finish(r.ctx(), r.plainly("s1", "s2")...))
	_, err := r.b.Edit(r.ctx(), store.Edit{IDs: []store.ID{r.ids["s8"]}, Change: store.Change{Op: store.Cancel}})
	r.must("cancel", err)
	if sh := r.sheet(); sh == nil || sh.N != 3 || sh.Lent != 4 || len(sh.Runs) != 6 {
		t.Fatalf("the sheet is %+v", sh)
	}
	counts, err := r.b.Count(r.ctx())
	r.must("count", err)
	if len(counts) != 2 || counts[0].Tasks+counts[1].Tasks != 7 {
		t.Errorf("counted %+v", counts)
	}
	for state, want := range map[store.State][]string{store.Available: {"s9", "s7", "s6"},
		store.Running: {"s5", "s4", "s3", "s0"}, store.Completed: {"s2", "s1"}, store.Cancelled: {"s8"}} {
		tasks, err := r.b.List(r.ctx(), store.Filter{States: []store.State{state}})
		r.must("list", err)
		for i := range tasks {
			if len(tasks) != len(want) || tasks[i].ID != r.ids[want[i]] {
				t.Fatalf("%v are %+v", state, tasks)
			}
		}
	}
	before := store.ID{}
	for i := 9; i >= 0; i -= 2 { // in pages
		tasks, err := r.b.List(r.ctx(), store.Filter{Before: before, Limit: 2})
		r.must("list", err)
		if len(tasks) != 2 || tasks[0].ID != r.ids[fmt.Sprintf("s%d", i)] || tasks[1].ID != r.ids[fmt.Sprintf("s%d", i-1)] {
			t.Fatalf("a page from s%d: %+v", i, tasks)
		}
		before = tasks[1].ID
	}
	r.drain()
}

// In the index, a sheet comes before other documents of its block, whatever their ids: a page that ended at the sheet
// left them out. A storm missed 7 tasks at its end that way, and a bulk operation would have missed them, too.
func TestPagesShowWhatStandsBesideASheet(t *testing.T) {
	r := newRig(t, 1)
	tasks := r.alike(24)
	for i := range tasks {
		if i < 7 || i >= 17 {
			tasks[i].Kind = fmt.Sprintf("k%d", i)
		}
	}
	r.add(tasks...)
	if r.sheet() == nil {
		t.Fatal("there is no sheet")
	}
	for limit := range len(tasks) + 1 {
		f := store.Filter{Limit: limit + 1}
		for i := len(tasks) - 1; i >= 0; {
			page, err := r.b.List(r.ctx(), f)
			r.must("list", err)
			if len(page) != min(f.Limit, i+1) {
				t.Fatalf("pages of %d: %d tasks from s%d on", f.Limit, len(page), i)
			}
			for _, is := range page {
				if is.ID != tasks[i].ID {
					t.Fatalf("pages of %d: s%d is not there", f.Limit, i)
				}
				i--
			}
			f.Before = page[len(page)-1].ID
		}
	}
}

// The owner of a unit dies after the unit has ended a task that stays in its sheet. Readers see the end, although the
// sheet does not show it yet.
func TestTheEndOfATaskInAPinnedSheetIsSeen(t *testing.T) {
	r := newRig(t, 1)
	r.lentSheet()
	end := r.plainly("s0")
	end[0].Then = []store.NewTask{r.task("then", keyed("k", store.Skip))} // the key is the root of the unit
	r.dieAfterMaking(r.ids["then"], func(ctx context.Context) error { return r.finish(ctx, end...) })
	if sh := r.sheet(); sh.Pin == nil {
		t.Fatal("the sheet is not pinned")
	}
	for name, want := range map[string]store.State{"s0": store.Completed, "s1": store.Running} {
		if is := r.get(r.ids[name]); is == nil || is.State != want {
			t.Errorf("%s is %+v, want %v", name, is, want)
		}
	}
	r.drain()
	r.byA(true, "s0")
	r.all(true, append(named10(), "then")...)
}
