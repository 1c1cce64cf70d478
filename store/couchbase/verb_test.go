package couchbase

import (
	"context"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/storetest"
)

// verb is a call that meets a fault at each of its requests.
type verb struct {
	name    string
	prepare func(r *rig)
	do      func(ctx context.Context, r *rig) error
	// check judges the result once everything has run. answered says that the call returned without an error.
	check func(r *rig, answered bool)
}

var verbs = []verb{
	{"enqueue", nil, func(ctx context.Context, r *rig) error {
		_, err := r.a.Enqueue(ctx, []store.NewTask{r.task("x", nil), r.task("y", nil),
			r.task("z", func(n *store.NewTask) { n.Priority = 1 })})
		return err
	}, func(r *rig, answered bool) { r.all(answered, "x", "y", "z") }},

	{"enqueue with a new key", nil, func(ctx context.Context, r *rig) error {
		_, err := r.a.Enqueue(ctx, []store.NewTask{r.task("x", keyed("k", store.Skip))})
		return err
	}, func(r *rig, answered bool) { r.all(answered, "x") }},

	{"replace", func(r *rig) { r.add(r.task("old", keyed("k", store.Skip))) }, func(ctx context.Context, r *rig) error {
		_, err := r.a.Enqueue(ctx, []store.NewTask{r.task("new", keyed("k", store.Replace))})
		return err
	}, func(r *rig, answered bool) {
		if t := r.get(r.ids["old"]); t == nil || t.State != store.Completed || answered && t.Kind != "new" {
			r.Errorf("the holder is %+v", t)
		}
	}},

	{"rerun while it runs", func(r *rig) {
		r.add(r.task("old", keyed("k", store.Skip)))
		r.claim()
	}, func(ctx context.Context, r *rig) error {
		_, err := r.a.Enqueue(ctx, []store.NewTask{r.task("new", keyed("k", store.Rerun))})
		return err
	}, func(r *rig, answered bool) { r.all(answered, "new") }},

	{"workflow", nil, func(ctx context.Context, r *rig) error {
		tasks := []store.NewTask{r.task("x", nil), r.task("y", nil)}
		tasks = append(tasks, r.task("left", needs(r.ids["x"])), r.task("right", needs(r.ids["x"], r.ids["y"])))
		_, err := r.a.Enqueue(ctx, append(tasks, r.task("last", needs(r.ids["left"], r.ids["right"]))))
		return err
	}, func(r *rig, answered bool) {
		names := []string{"x", "y", "left", "right", "last"}
		for _, name := range names { // all of them are stored, or none
			answered = answered || r.get(r.ids[name]) != nil
		}
		r.all(answered, names...)
	}},

	{"workflow with keys", nil, func(ctx context.Context, r *rig) error {
		tasks := []store.NewTask{r.task("x", keyed("k", store.Skip))}
		_, err := r.a.Enqueue(ctx, append(tasks, r.task("y", needs(r.ids["x"])), r.task("z", needs(r.ids["x"], r.ids["y"]))))
		return err
	}, func(r *rig, answered bool) { r.all(answered, "x", "y", "z") }},

	{"need what is stored", func(r *rig) {
		r.add(r.task("x", nil))
		r.claim()
		r.add(r.task("y", nil))
	}, func(ctx context.Context, r *rig) error {
		_, err := r.a.Enqueue(ctx, []store.NewTask{r.task("child", needs(r.ids["x"], r.ids["y"])),
			r.task("other", needs(r.ids["y"]))})
		return err
	}, func(r *rig, answered bool) { r.all(true, "x", "y"); r.all(answered, "child", "other") }},

	{"complete", func(r *rig) {
		r.add(r.task("x", nil))
		r.claim()
	}, func(ctx context.Context, r *rig) error {
		return r.finish(ctx, r.outcome("x", store.Completed))
	}, func(r *rig, answered bool) { r.once("x", answered) }},

	{"complete with a key, Then and children", func(r *rig) {
		r.add(r.task("x", keyed("k", store.Skip)))
		r.claim()
		r.add(r.task("child", needs(r.ids["x"])), r.task("other", needs(r.ids["x"])), r.task("next", keyed("k", store.Rerun)))
	}, func(ctx context.Context, r *rig) error {
		o := r.outcome("x", store.Completed)
		o.Then = []store.NewTask{r.task("then", nil), r.task("then2", keyed("k2", store.Skip))}
		return r.finish(ctx, o)
	}, func(r *rig, answered bool) {
		r.all(true, "next")
		r.together("x", "then", "then2")
		if x := r.get(r.ids["x"]); answered || x.State == store.Completed { // otherwise next has superseded it
			r.all(true, "child", "other")
			r.once("x", answered)
		}
	}},

	{"retry", func(r *rig) {
		r.add(r.task("x", keyed("k", store.Skip)))
		r.claim()
	}, func(ctx context.Context, r *rig) error {
		o := r.outcome("x", store.Retryable)
		o.Error, o.Fingerprint = "no", "no"
		return r.finish(ctx, o)
	}, func(r *rig, _ bool) { r.all(true, "x") }},

	{"retry that is superseded", func(r *rig) {
		r.add(r.task("x", keyed("k", store.Skip)))
		r.claim()
		r.add(r.task("next", keyed("k", store.Rerun)))
	}, func(ctx context.Context, r *rig) error {
		return r.finish(ctx, r.outcome("x", store.Retryable))
	}, func(r *rig, _ bool) { r.all(true, "next") }},

	{"complete and forget", func(r *rig) {
		r.add(r.task("x", keyed("k", store.Skip)), r.task("y", nil))
		r.claim()
	}, func(ctx context.Context, r *rig) error {
		x, y := r.outcome("x", store.Completed), r.outcome("y", store.Completed)
		x.Forget, y.Forget = true, true
		x.Then = []store.NewTask{r.task("then", nil)}
		return r.finish(ctx, x, y)
	}, func(r *rig, answered bool) {
		r.all(answered, "then")
		if x := r.get(r.ids["x"]); (x == nil) == (r.get(r.ids["then"]) == nil) {
			r.Errorf("one of x and its Then is missing, or both are there: %+v", x)
		}
	}},

	{"wait for children", func(r *rig) {
		r.add(r.task("x", nil))
		r.claim()
	}, func(ctx context.Context, r *rig) error {
		o := r.outcome("x", store.Pending)
		o.Then = []store.NewTask{r.task("kid", nil), r.task("kid2", nil)}
		o.Needs = []store.Need{{Task: r.ids["kid"]}, {Task: r.ids["kid2"]}}
		return r.finish(ctx, o)
	}, func(r *rig, answered bool) {
		r.all(true, "x")
		r.all(answered, "kid", "kid2")
	}},

	{"cancel", func(r *rig) {
		r.add(r.task("x", keyed("k", store.Skip)))
		r.add(r.task("child", needs(r.ids["x"])), r.task("grandchild", needs(r.ids["child"])) /* cancelled, too */)
		r.ids["grandchild"] = r.ids["child"]
	}, edit(store.Change{Op: store.Cancel}), func(r *rig, answered bool) {
		if x := r.get(r.ids["x"]); answered && x.State != store.Cancelled {
			r.Errorf("it is %v", x.State)
		} else if child := r.get(r.ids["child"]); child.State != x.State {
			r.Errorf("it is %v, and its child %v", x.State, child.State)
		}
	}},

	{"cancel a running one", func(r *rig) {
		r.add(r.task("x", nil))
		r.claim()
	}, edit(store.Change{Op: store.Cancel}), func(r *rig, answered bool) {
		if x := r.get(r.ids["x"]); answered && x.State != store.Cancelled {
			r.Errorf("it is %v", x.State)
		}
	}},

	{"delete", func(r *rig) {
		r.add(r.task("x", keyed("k", store.Skip)))
		r.add(r.task("child", needs(r.ids["x"])))
	}, edit(store.Change{Op: store.Delete}), func(r *rig, answered bool) {
		child := r.get(r.ids["child"])
		switch x := r.get(r.ids["x"]); {
		case answered && x != nil:
			r.Errorf("it is still there: %v", x.State)
		case x == nil && child.State != store.Cancelled, x != nil && child.State != store.Completed:
			r.Errorf("it is %v, and its child %v", x, child.State)
		}
	}},

	{"move", func(r *rig) { r.add(r.task("x", keyed("k", store.Skip))) },
		edit(store.Change{Op: store.Move, Queue: "q2"}), func(r *rig, answered bool) {
			r.all(true, "x")
			if x := r.get(r.ids["x"]); answered && x.Queue != "q2" {
				r.Errorf("it is in %s", x.Queue)
			}
		}},

	{"reprioritize", func(r *rig) { r.add(r.task("x", nil)) }, edit(store.Change{Op: store.Reprioritize, Priority: 5}),
		func(r *rig, _ bool) { r.all(true, "x") }},

	{"grant", func(r *rig) { r.add(r.task("x", inTurns), r.task("y", inTurns)) }, func(ctx context.Context, r *rig) error {
		_, err := r.a.Grant(ctx, r.term, []store.ID{r.ids["x"]})
		return err
	}, func(r *rig, _ bool) { r.all(true, "x", "y") }},

	{"claim", func(r *rig) {
		r.add(r.task("x", nil), r.task("y", nil), r.task("z", func(n *store.NewTask) { n.Priority = 1 }))
	}, claimTwo, func(r *rig, _ bool) { r.all(true, "x", "y", "z") }},

	{"claim from a lane that another claim has locked", func(r *rig) {
		r.add(r.task("x", nil), r.task("y", nil), r.task("z", func(n *store.NewTask) { n.Priority = 1 }))
		_, err := r.b.lines.GetAndLock(lineOfRig.cursor(), lockTime, nil)
		r.must("lock", err)
	}, func(ctx context.Context, r *rig) error {
		time.AfterFunc(20*time.Millisecond, r.f.ForgetLocks) // sooner than locks expire
		return claimTwo(ctx, r)
	}, func(r *rig, _ bool) { r.all(true, "x", "y", "z") }},

	{"claim by a new worker", func(r *rig) {
		r.add(r.task("x", nil))
		r.worker = storetest.NewID()
	}, func(ctx context.Context, r *rig) error {
		_, err := r.a.Extend(ctx, store.Beat{Worker: store.Worker{ID: r.worker, Queues: []string{"q"}}, TTL: time.Hour})
		if err != nil {
			return err
		}
		return claimTwo(ctx, r)
	}, func(r *rig, _ bool) { r.all(true, "x") }},

	{"rescue", func(r *rig) {
		r.add(r.task("x", nil))
		r.claim()
		r.beat(r.b, r.worker, time.Nanosecond)
	}, func(ctx context.Context, r *rig) error {
		_, err := r.a.Rescue(ctx, r.term, 10)
		return err
	}, func(r *rig, _ bool) { r.all(true, "x") }},

	{"admit", func(r *rig) {
		r.add(r.task("x", func(n *store.NewTask) { n.Delay = time.Millisecond }),
			r.task("t", func(n *store.NewTask) { n.Delay, n.Turn = time.Millisecond, true }))
		time.Sleep(2 * time.Millisecond)
	}, func(ctx context.Context, r *rig) error {
		_, err := r.a.Admit(ctx, r.term, 10)
		return err
	}, func(r *rig, _ bool) { r.all(true, "x", "t") }},

	{"cancel the doomed", func(r *rig) {
		r.add(r.task("x", nil))
		r.add(r.task("child", needs(r.ids["x"])), r.task("grandchild", needs(r.ids["child"])))
		_, err := r.b.Edit(r.ctx(), store.Edit{IDs: []store.ID{r.ids["x"]}, Change: store.Change{Op: store.Cancel}})
		r.must("cancel", err)
	}, func(ctx context.Context, r *rig) error {
		_, err := r.a.Admit(ctx, r.term, 10)
		return err
	}, func(r *rig, _ bool) {
		for _, name := range []string{"x", "child", "grandchild"} {
			if t := r.get(r.ids[name]); t.State != store.Cancelled {
				r.Errorf("%s is %v", name, t.State)
			}
		}
	}},

	{"prune", func(r *rig) {
		r.add(r.task("x", keyed("k", store.Skip)))
		r.add(r.task("child", needs(r.ids["x"])))
		r.claim()
		r.must("finish", r.finish(r.ctx(), r.outcome("x", store.Completed)))
		time.Sleep(2 * time.Millisecond)
	}, func(ctx context.Context, r *rig) error {
		_, err := r.a.Prune(ctx, r.term, store.Retention{Completed: time.Microsecond}, 10)
		return err
	}, func(r *rig, answered bool) {
		r.all(true, "child")
		if r.get(r.ids["x"]) != nil && answered {
			r.Errorf("it is still there")
		}
	}},

	{"put a record with tasks", func(r *rig) { r.record("r") }, func(ctx context.Context, r *rig) error {
		_, _, err := r.a.PutRecord(ctx, store.PutRecord{Record: r.note(),
			Tasks: []store.NewTask{r.task("x", nil), r.task("y", keyed("k", store.Skip))}})
		return err
	}, func(r *rig, answered bool) {
		r.all(answered, "x", "y")
		if both := r.get(r.ids["x"]) != nil; both != (r.body("r") == "2") {
			r.Errorf("the record is %s, and its task there: %v", r.body("r"), both)
		}
	}},

	{"restore", func(r *rig) {
		r.record("r")
		r.add(r.task("x", keyed("k", store.Skip)))
		r.add(r.task("y", needs(r.ids["x"])))
		for _, name := range []string{"x", "y"} {
			r.claim()
			r.must("finish", r.finish(r.ctx(), r.outcome(name, store.Completed)))
		}
		r.archive(2)
	}, func(ctx context.Context, r *rig) error {
		_, exist, err := r.a.Restore(ctx, r.note(), r.archived)
		if len(exist) > 0 {
			r.Errorf("%v exist", exist)
		}
		return err
	}, func(r *rig, answered bool) {
		r.all(answered, "x", "y")
		x, y := r.get(r.ids["x"]) != nil, r.get(r.ids["y"]) != nil
		if noted := r.body("r") == "2"; x != noted || y != noted {
			r.Errorf("the record is written: %v, and its tasks are there: %v and %v", noted, x, y)
		}
	}},

	{"complete what was restored", func(r *rig) {
		r.record("r")
		r.add(r.task("x", keyed("k", store.Skip)))
		r.add(r.task("child", func(n *store.NewTask) {
			n.Needs = []store.Need{{Task: r.ids["x"], OnFailure: store.WaitOnFailure}}
		}))
		r.must("cancel", edit(store.Change{Op: store.Cancel})(r.ctx(), r))
		r.archive(1)
		_, _, err := r.b.Restore(r.ctx(), r.note(), r.archived)
		r.must("restore", err)
		r.must("retry", edit(store.Change{Op: store.Retry})(r.ctx(), r))
		r.claim()
	}, func(ctx context.Context, r *rig) error {
		return r.finish(ctx, r.outcome("x", store.Completed))
	}, func(r *rig, answered bool) {
		r.once("x", answered)
		r.all(true, "child")
	}},

	{"delete a record", func(r *rig) { r.record("r") }, func(ctx context.Context, r *rig) error {
		_, _, err := r.a.PutRecord(ctx, store.PutRecord{Record: store.Record{Kind: "kind", Name: "r", Version: r.stored}})
		return err
	}, func(r *rig, answered bool) {
		if answered && r.body("r") != "" {
			r.Errorf("it is still there")
		}
	}},
}

func (r *rig) finish(ctx context.Context, outcomes ...store.Outcome) error {
	lost, err := r.a.Finish(ctx, outcomes)
	if len(lost) > 0 {
		r.Errorf("%d outcomes are refused", len(lost))
	}
	return err
}

func edit(c store.Change) func(ctx context.Context, r *rig) error {
	return func(ctx context.Context, r *rig) error {
		_, err := r.a.Edit(ctx, store.Edit{IDs: []store.ID{r.ids["x"]}, Change: c})
		return err
	}
}

// claimTwo makes a claim up to two tasks, and repeats the request if there is no answer.
func claimTwo(ctx context.Context, r *rig) error {
	req := store.ClaimRequest{Worker: r.worker, Queues: []string{"q"}, Limit: 2, Token: store.NewToken()}
	tasks, err := r.a.Claim(ctx, req)
	if err != nil && ctx.Err() == nil {
		req.Again = true
		tasks, err = r.a.Claim(ctx, req)
	}
	for _, t := range tasks {
		r.held[t.Kind] = t
	}
	return err
}

func (r *rig) record(name string) {
	r.Helper()
	version, _, err := r.b.PutRecord(r.ctx(), store.PutRecord{Record: store.Record{Kind: "kind", Name: name,
		Body: []byte("1")}})
	r.must("put record", err)
	r.stored = version
}

// note is a changed record.
func (r *rig) note() store.Record {
	return store.Record{Kind: "kind", Name: "r", Version: r.stored, Body: []byte("2")}
}

// archive records the tasks that have ended, and has them deleted.
func (r *rig) archive(n int) {
	r.Helper()
	time.Sleep(2 * time.Millisecond)
	due, err := r.b.Due(r.ctx(), store.Retention{Completed: time.Microsecond, Cancelled: time.Microsecond}, "", n)
	r.must("due", err)
	back, err := r.b.Release(r.ctx(), due.Receipt)
	r.must("release", err)
	if r.archived = due.Tasks; len(due.Tasks) != n || len(back) > 0 {
		r.Fatalf("%d tasks are archived, and %v are not", len(due.Tasks), back)
	}
}
