package couchbase

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk/store"
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
