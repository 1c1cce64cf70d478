package couchbase

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/couchbase/gocbcore/v10/memd"

	"github.com/tuskqueue/tusk/internal/cbfake"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// overtaken runs a call of a. The call's first write of a document, of some kind, loses its answer. Before a looks for
// it, other calls write the document.
func (r *rig) overtaken(code memd.CmdCode, key string, call, others func()) {
	r.Helper()
	var step atomic.Int64
	r.f.Set(cbfake.Faults{Request: func(c memd.CmdCode, k string) cbfake.Spoil {
		switch {
		case c == code && k == key && step.CompareAndSwap(0, 1):
			return cbfake.LoseAnswer
		case c == memd.CmdGet && k == key && step.CompareAndSwap(1, 2):
			others()
		}
		return cbfake.Sound
	}})
	call()
	r.f.Set(cbfake.Faults{})
	if step.Load() != 2 {
		r.Fatalf("nobody came in between: %d", step.Load())
	}
}

// complete makes others complete what a has decided: their clock is ahead.
func (r *rig) complete() {
	time.Sleep(2 * r.b.patience)
	if _, err := r.b.sweep(r.ctx(), 0); err != nil {
		r.Errorf("sweep: %v", err)
	}
}

// claimOne makes b claim a task of a sheet while a writes other tasks of it.
func (r *rig) claimOne() {
	tasks, err := r.b.Claim(r.ctx(), store.ClaimRequest{Worker: r.worker, Queues: []string{"q"}, Limit: 1,
		Token: store.NewToken()})
	if err != nil || len(tasks) != 1 {
		r.Errorf("claimed %d tasks: %v", len(tasks), err)
	}
}

func (r *rig) sheetKey() string {
	at, _ := block(r.ids["s0"].String())
	return at.ID
}

// An end of tasks of a sheet is accepted, but its answer is lost, and others write the sheet before the caller looks.
func TestALostAnswerToAWriteThatOthersHaveWrittenOver(t *testing.T) {
	retry := func(r *rig) []store.Outcome {
		o := r.outcome("s0", store.Retryable)
		o.Note, o.Error, o.Fingerprint = nil, "no", "no"
		return append(r.plainly("s1", "s2"), o)
	}
	for name, is := range map[string]struct {
		ends   func(r *rig) []store.Outcome
		others func(r *rig)
	}{
		"completed, others are claimed": {func(r *rig) []store.Outcome { return r.plainly("s0", "s1", "s2") },
			func(r *rig) { r.claimOne(); r.claimOne() }},
		"one is to be retried, and its unit is completed": {retry, (*rig).complete},
		"one is to be retried, its unit is completed, and others are claimed": {retry,
			func(r *rig) { r.complete(); r.claimOne() }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1)
			r.add(r.alike(10)...)
			r.must("claim", r.lend(r.ctx(), 5))
			r.overtaken(memd.CmdReplace, r.sheetKey(), func() { r.must("finish", r.finish(r.ctx(), is.ends(r)...)) },
				func() { is.others(r) })
			r.must("finish", r.finish(r.ctx(), r.plainly("s3", "s4")...)) // its sheet is outdated here
			r.drain()
			r.byA(true, "s1", "s2", "s3", "s4")
			r.all(true, named10()...)
		})
	}
}

// A claim of a part of a sheet has its tasks, although others have claimed from the sheet since.
func TestALostAnswerToAClaimOfAPartOfASheet(t *testing.T) {
	r := newRig(t, 1)
	r.add(r.alike(10)...)
	r.overtaken(memd.CmdReplace, r.sheetKey(), func() { r.must("claim", r.lend(r.ctx(), 4)) }, r.claimOne)
	if len(r.held) != 4 {
		t.Fatalf("%d of 4 are claimed", len(r.held))
	}
	r.must("finish", r.finish(r.ctx(), r.plainly("s0", "s1", "s2", "s3")...))
	r.drain()
	r.byA(true, "s0", "s1", "s2", "s3")
}

// An enqueue with a key has added its task, although others have completed it.
func TestALostAnswerToAnEnqueueWithAKey(t *testing.T) {
	key := keyRef(rules.KeyName{Queue: "q", Key: "k"}).ID
	for name, code := range map[string]memd.CmdCode{"new": memd.CmdAdd, "free": memd.CmdReplace} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1)
			if name == "free" {
				r.add(r.task("before", keyed("k", store.Skip)))
				r.claim()
				r.must("finish", r.finish(r.ctx(), r.outcome("before", store.Completed)))
			}
			r.overtaken(code, key, func() {
				did, err := r.a.Enqueue(r.ctx(), []store.NewTask{r.task("x", keyed("k", store.Skip))})
				r.must("enqueue", err)
				if did[0].Result != store.Added {
					t.Errorf("its own task is %v", did[0].Result)
				}
			}, r.complete)
			r.drain()
			r.all(true, "x")
		})
	}
}

// A task ends, is forgotten, and is gone before the caller looks. The caller knows by the grave that its write has
// happened. Without a grave, as for an old task, nobody can tell. Then the end does not count as refused, and the tasks
// that follow from it are not stored again.
func TestALostAnswerToAWriteOfWhatHasGone(t *testing.T) {
	for name, young := range map[string]bool{"young": true, "old": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1)
			if !young {
				r.b.lateBy = 0
			}
			r.add(r.task("x", nil))
			r.claim()
			o := r.outcome("x", store.Completed)
			o.Forget, o.Then = true, []store.NewTask{r.task("then", nil)}
			r.overtaken(memd.CmdReplace, r.ids["x"].String(), func() {
				lost, err := r.a.Finish(r.ctx(), []store.Outcome{o})
				if len(lost) > 0 || young != (err == nil) || !young && !errors.Is(err, store.ErrUnavailable) {
					t.Errorf("%d are lost: %v", len(lost), err)
				}
			}, r.complete)
			r.drain()
			r.all(true, "then")
			if r.get(r.ids["x"]) != nil {
				t.Error("it is still there")
			}
		})
	}
}

// A process whose write was overtaken checks whether the unit is still its own before it keeps the task that it has
// created: others have created the task of the unit, and it was deleted since.
func TestAnOvertakenUnitDoesNotBringItsTaskBack(t *testing.T) {
	r := newRig(t, 1)
	r.record("r")
	n := r.task("x", nil)
	r.overtaken(memd.CmdReplace, recordRef("kind", "r").ID, func() {
		_, _, err := r.a.PutRecord(r.ctx(), store.PutRecord{Record: r.note(), Tasks: []store.NewTask{n}})
		r.must("put record", err)
	}, func() {
		r.complete()
		_, err := r.b.Edit(r.ctx(), store.Edit{IDs: []store.ID{n.ID}, Change: store.Change{Op: store.Delete}})
		r.must("delete", err)
	})
	if r.get(n.ID) != nil {
		t.Error("a task that was deleted is there again")
	}
	r.drain()
}

// A pinned document that others rewrite unchanged still gets what was decided.
func TestAPinnedDocumentThatOthersWriteAsItIs(t *testing.T) {
	r := newRig(t, 1)
	r.add(r.task("x", keyed("k", store.Skip)))
	r.claim()
	x, key := taskRef(r.ids["x"]), keyRef(rules.KeyName{Queue: "q", Key: "k"})
	var decided atomic.Bool
	r.f.Set(cbfake.Faults{Request: func(c memd.CmdCode, k string) cbfake.Spoil {
		if c == memd.CmdReplace && k == key.ID && decided.CompareAndSwap(false, true) {
			d, err := r.b.read(r.ctx(), x)
			if err != nil || d.header().Pin == nil {
				t.Errorf("it is not pinned: %+v, %v", d, err)
			} else if ok, err := r.b.write(r.ctx(), d); !ok || err != nil {
				t.Errorf("replace: %v, %v", ok, err)
			}
		}
		return cbfake.Sound
	}})
	r.must("finish", r.finish(r.ctx(), r.outcome("x", store.Completed)))
	r.f.Set(cbfake.Faults{})
	if d, err := r.b.read(r.ctx(), x); err != nil || d.header().Pin != nil || d.task().State != "c" {
		t.Errorf("it is %s: %v", d.raw, err)
	}
	r.drain()
	r.once("x", true)
}

// A document keeps the nonces of a limited number of writes.
func TestADocumentKeepsAFewNonces(t *testing.T) {
	h := &head{}
	var all []string
	for range 3 * keptWrites {
		h.sign()
		all = append(all, h.U)
	}
	last := len(all) - 1
	if h.U != all[last] || !slices.Equal(h.Us, all[last-keptWrites:last]) {
		t.Errorf("of %v it keeps %v and %s", all, h.Us, h.U)
	}
	text, err := encode(h)
	if err != nil || len(text) > 180 {
		t.Errorf("they take %d bytes: %s, %v", len(text), text, err)
	}
}

// A claim's answer is lost, and others change its task, so the claim knows an old document. The end of the task notices
// that, and succeeds.
func TestTheEndOfATaskWhoseClaimWasOvertaken(t *testing.T) {
	r := newRig(t, 1)
	r.add(r.task("x", nil))
	r.overtaken(memd.CmdReplace, r.ids["x"].String(), r.claim, func() {
		_, err := r.b.Edit(r.ctx(), store.Edit{IDs: []store.ID{r.ids["x"]}, Change: store.Change{Op: store.Cancel}})
		if err != nil {
			r.Errorf("cancel: %v", err)
		}
	})
	r.must("finish", r.finish(r.ctx(), r.outcome("x", store.Completed)))
	r.drain()
	r.once("x", true)
}
