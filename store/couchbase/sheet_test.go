package couchbase

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
	"github.com/tuskqueue/tusk/store/storetest"
)

// alike makes n tasks that differ only in their ids and args, named s0, s1 and so on. Their ids begin a block.
func (r *rig) alike(n int) []store.NewTask {
	tasks := make([]store.NewTask, n)
	for i, id := range blocks(n) {
		name := fmt.Sprintf("s%d", i)
		r.ids[name] = id
		tasks[i] = store.NewTask{ID: id, Kind: "k", Queue: "q", Args: []byte(`"` + name + `"`)}
	}
	return tasks
}

// blocks makes n ids that begin a block.
func blocks(n int) []store.ID {
	ids := make([]store.ID, n)
	var id store.ID
	for i := range ids {
		if i%256 == 0 {
			id = storetest.NewID()
			rand.Read(id[9:])
		}
		id[15] = byte(i)
		ids[i] = id
	}
	return ids
}

func named10() (names []string) {
	for i := range 10 {
		names = append(names, fmt.Sprintf("s%d", i))
	}
	return names
}

// lend makes a claim up to limit tasks.
func (r *rig) lend(ctx context.Context, limit int) error {
	req := store.ClaimRequest{Worker: r.worker, Queues: []string{"q"}, Limit: limit, Token: store.NewToken()}
	tasks, err := r.a.Claim(ctx, req)
	if err != nil && ctx.Err() == nil {
		req.Again = true
		tasks, err = r.a.Claim(ctx, req)
	}
	for _, t := range tasks {
		r.held[string(t.Args[1:len(t.Args)-1])] = t
	}
	return err
}

// plainly completes tasks that a holds.
func (r *rig) plainly(names ...string) (outcomes []store.Outcome) {
	for _, name := range names {
		o := r.outcome(name, store.Completed)
		o.Note = nil
		outcomes = append(outcomes, o)
	}
	return outcomes
}

// byA fails unless tasks have completed once, and by a if it got an answer.
func (r *rig) byA(answered bool, names ...string) {
	r.Helper()
	r.all(true, names...)
	for _, name := range names {
		t := r.get(r.ids[name])
		done := t.Detail.Attempts[len(t.Detail.Attempts)-1].Worker == r.worker
		if answered && !done || done == (r.ran[t.ID] > 0) {
			r.Errorf("%s was completed by a: %v, by b %d times", name, done, r.ran[t.ID])
		}
	}
}

func (r *rig) lentSheet() {
	r.add(r.alike(10)...)
	r.must("claim", r.lend(r.ctx(), 100))
}

// sheet reads the sheet of s0. It returns nil if there is none.
func (r *rig) sheet() *sheet {
	r.Helper()
	at, _ := block(r.ids["s0"].String())
	d, err := r.b.read(r.ctx(), at)
	r.must("read", err)
	if d == nil || d.header().buried() {
		return nil
	}
	return d.sheetOf()
}

func init() { verbs = append(verbs, ofSheets...) }

var ofSheets = []verb{
	{"enqueue a sheet", nil, func(ctx context.Context, r *rig) error {
		_, err := r.a.Enqueue(ctx, r.alike(10))
		return err
	}, func(r *rig, answered bool) { r.all(answered, named10()...) }},

	{"enqueue sheets and others", nil, func(ctx context.Context, r *rig) error {
		_, err := r.a.Enqueue(ctx, append(r.alike(80), r.task("x", keyed("k", store.Skip)), r.task("y", nil)))
		return err
	}, func(r *rig, answered bool) { r.all(answered, append(named10(), "s79", "x", "y")...) }},

	{"claim a part of a sheet", func(r *rig) { r.add(r.alike(10)...) }, func(ctx context.Context, r *rig) error {
		return r.lend(ctx, 4)
	}, func(r *rig, _ bool) { r.all(true, named10()...) }},

	{"complete a run", (*rig).lentSheet, func(ctx context.Context, r *rig) error {
		return r.finish(ctx, r.plainly(named10()...)...)
	}, func(r *rig, answered bool) { r.byA(answered, named10()...) }},

	{"outcomes of all kinds", (*rig).lentSheet, func(ctx context.Context, r *rig) error {
		outcomes := r.plainly(named10()...)
		outcomes[1].State, outcomes[1].Error, outcomes[1].Fingerprint = store.Retryable, "no", "no"
		outcomes[2].Then = []store.NewTask{r.task("then", nil)}
		outcomes[3].Note = &store.Note{Output: []byte(`"a"`)}
		outcomes[4].Forget = true
		outcomes[5].State = store.Available
		return r.finish(ctx, outcomes...)
	}, func(r *rig, answered bool) {
		r.all(true, "s0", "s1", "s2", "s3", "s5", "s6")
		r.all(answered, "then")
		r.byA(answered, "s0", "s3", "s9")
		if answered && (r.get(r.ids["s4"]) != nil || r.ran[r.ids["s1"]] != 1 || r.ran[r.ids["s5"]] != 1) {
			r.Errorf("s4 is still there, or s1 and s5 ran %d and %d times", r.ran[r.ids["s1"]], r.ran[r.ids["s5"]])
		}
	}},

	{"a note on one of a sheet", (*rig).lentSheet, func(ctx context.Context, r *rig) error {
		one := r.held["s3"]
		_, err := r.a.Extend(ctx, store.Beat{Worker: store.Worker{ID: r.worker, Queues: []string{"q"}}, TTL: time.Hour,
			Notes: []store.Note{{ID: one.ID, Lease: one.Lease, Output: []byte(`"noted"`)}}})
		return err
	}, func(r *rig, answered bool) {
		r.all(true, named10()...)
		if s3 := r.get(r.ids["s3"]); answered && string(s3.Detail.Output) != `"noted"` {
			r.Errorf("its output is %s", s3.Detail.Output)
		}
	}},

	{"edit one of a sheet", func(r *rig) {
		r.add(r.alike(10)...)
		r.ids["x"] = r.ids["s0"]
	}, edit(store.Change{Op: store.Move, Queue: "q2"}), func(r *rig, answered bool) {
		r.all(true, named10()...)
		if x := r.get(r.ids["x"]); answered && x.Queue != "q2" {
			r.Errorf("it is in %s", x.Queue)
		}
	}},

	{"move a sheet", func(r *rig) { r.add(r.alike(10)...) }, func(ctx context.Context, r *rig) error {
		var ids []store.ID
		for _, name := range named10() {
			ids = append(ids, r.ids[name])
		}
		_, err := r.a.Edit(ctx, store.Edit{IDs: ids, Change: store.Change{Op: store.Move, Queue: "q2"}})
		return err
	}, func(r *rig, answered bool) {
		r.all(true, named10()...)
		for _, name := range named10() {
			if is := r.get(r.ids[name]); answered && is.Queue != "q2" {
				r.Errorf("it is in %s", is.Queue)
			}
		}
	}},

	{"need one of a sheet", func(r *rig) { r.add(r.alike(10)...) }, func(ctx context.Context, r *rig) error {
		_, err := r.a.Enqueue(ctx, []store.NewTask{r.task("child", needs(r.ids["s2"], r.ids["s3"]))})
		return err
	}, func(r *rig, answered bool) {
		r.all(true, named10()...)
		r.all(answered, "child")
	}},

	{"rescue a run", func(r *rig) {
		r.lentSheet()
		r.beat(r.b, r.worker, time.Nanosecond)
	}, func(ctx context.Context, r *rig) error {
		dead, err := r.a.Rescue(ctx, r.term, 100)
		var outcomes []store.Outcome
		for i := range dead {
			outcomes = append(outcomes, store.Outcome{Task: &dead[i], State: store.Available, Attempt: 1, Crashes: 1})
		}
		if err == nil {
			err = r.finish(ctx, outcomes...)
		}
		return err
	}, func(r *rig, _ bool) { r.all(true, named10()...) }},

	{"prune a sheet", func(r *rig) {
		r.lentSheet()
		r.must("finish", r.finish(r.ctx(), r.plainly(named10()...)...))
		time.Sleep(2 * time.Millisecond)
	}, func(ctx context.Context, r *rig) error {
		for range 2 { // a part, and then the rest
			if _, err := r.a.Prune(ctx, r.term, store.Retention{Completed: time.Microsecond}, 7); err != nil {
				return err
			}
		}
		return nil
	}, func(r *rig, answered bool) {
		if r.sheet() != nil && answered {
			r.Errorf("the sheet is still there")
		}
	}},
}

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

// A block has one sheet. If another call already has it, a call stores its tasks separately, lined up like others.
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
