package couchbase

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/couchbase/gocbcore/v10/memd"

	"github.com/tuskqueue/tusk/internal/cbfake"
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

// If a process stops at any of its requests, before or after the request took effect, another process completes
// everything. If an answer is lost, or a request is refused temporarily, nothing changes for the caller.
func TestFaultsAtEachRequest(t *testing.T) {
	all, step := faults, int64(6) // each sixth request, another one in each run; in long runs all
	if os.Getenv("TUSK_TEST_LONG") != "" {
		all, step = append(all, likeThem...), 1
	}
	for _, v := range verbs {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			for _, f := range all {
				for n, met := 1+rand.N(step), true; met; n += step {
					t.Run(fmt.Sprintf("%s %d", f.name, n), func(t *testing.T) { met = v.hit(t, f, n) && !t.Failed() })
				}
			}
		})
	}
}

// hit runs a verb with one fault, and reports whether the verb had so many requests.
func (v *verb) hit(t *testing.T, f fault, n int64) (met bool) {
	r := newRig(t, 1)
	if v.prepare != nil {
		v.prepare(r)
	}
	met, err := r.spoil(n, f, func(ctx context.Context) error { return v.do(ctx, r) })
	if err != nil && !(f.dead && met) {
		r.Fatalf("%s: %v", v.name, err)
	}
	r.drain()
	v.check(r, err == nil)
	return met
}

// Each request is refused three times before it is served: the node is busy, a durable write of the document is under
// way, and the node no longer has the document. The cluster has three nodes.
func TestRefusalsForNow(t *testing.T) {
	for _, v := range verbs {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 3)
			if v.prepare != nil {
				v.prepare(r)
			}
			var mu sync.Mutex
			refused := map[string]int{}
			r.f.Set(cbfake.Faults{Request: func(code memd.CmdCode, key string) cbfake.Spoil {
				mu.Lock()
				defer mu.Unlock()
				n := refused[key]
				refused[key]++
				return [...]cbfake.Spoil{cbfake.Busy, cbfake.SyncWrite, cbfake.Elsewhere, cbfake.Sound}[n%4]
			}})
			err := v.do(r.ctx(), r)
			r.f.Set(cbfake.Faults{})
			r.must(v.name, err)
			r.drain()
			v.check(r, true)
		})
	}
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

// claimTwo has a claim up to two tasks, and ask again if there is no answer.
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

// all fails unless those of the tasks that exist are completed, and all exist if they must.
func (r *rig) all(must bool, names ...string) {
	r.Helper()
	for _, name := range names {
		t := r.get(r.ids[name])
		switch {
		case t == nil && must:
			r.Errorf("%s is lost", name)
		case t != nil && t.State != store.Completed && (must || t.State != store.Cancelled):
			r.Errorf("%s is %v", name, t.State)
		}
	}
}

// once fails unless a task that a held has completed once, and by a if a got an answer.
func (r *rig) once(name string, answered bool) {
	r.Helper()
	t := r.get(r.ids[name])
	byA := string(t.Detail.Output) == `"a"`
	if t.State != store.Completed || answered && !byA || byA == (r.ran[t.ID] > 0) {
		r.Errorf("%s is %v, by a %v, by b %d times", name, t.State, byA, r.ran[t.ID])
	}
}

// together fails unless the tasks that came with an outcome exist if and only if the outcome was accepted.
func (r *rig) together(name string, then ...string) {
	r.Helper()
	accepted := string(r.get(r.ids[name]).Detail.Output) == `"a"`
	for _, other := range then {
		if there := r.get(r.ids[other]) != nil; there != accepted {
			r.Errorf("the outcome was accepted: %v, and %s is there: %v", accepted, other, there)
		}
	}
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

func (r *rig) find(name string) *store.Record {
	r.Helper()
	records, err := r.b.Records(r.ctx(), store.RecordFilter{Kind: "kind"})
	r.must("records", err)
	for i := range records {
		if records[i].Name == name {
			return &records[i]
		}
	}
	return nil
}

func (r *rig) body(name string) string {
	if found := r.find(name); found != nil {
		return string(found.Body)
	}
	return ""
}

// A failover at any request of a verb loses everything that the verb has written without durability. Acknowledged
// writes stay, each task ends once, and no work is left over.
func TestFailoverAtEachRequest(t *testing.T) {
	step := int64(4) // each fourth request, another one in each run; in long runs all
	if os.Getenv("TUSK_TEST_LONG") != "" {
		step = 1
	}
	for _, v := range verbs {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			for n, met := 1+rand.N(step), true; met; n += step {
				t.Run(fmt.Sprint(n), func(t *testing.T) { met = v.failOver(t, n) && !t.Failed() })
			}
		})
	}
}

func (v *verb) failOver(t *testing.T, n int64) (met bool) {
	r := newRig(t, 1)
	r.durable("majority")
	r.b.patience = 2 * time.Millisecond
	if v.prepare != nil {
		v.prepare(r)
	}
	var count atomic.Int64
	r.f.Set(cbfake.Faults{Remember: time.Hour, Request: func(memd.CmdCode, string) cbfake.Spoil {
		if count.Add(1) == n {
			for vb := range r.f.Vbuckets() {
				r.f.FailOver(vb, time.Hour)
			}
		}
		return cbfake.Sound
	}})
	err := v.do(r.ctx(), r)
	r.f.Set(cbfake.Faults{})
	r.must(v.name, err)
	r.drain()
	v.check(r, true)
	return count.Load() >= n
}
