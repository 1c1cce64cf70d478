package couchbase

import (
	"strings"
	"testing"
	"time"

	"github.com/couchbase/gocb/v2"
	"github.com/couchbase/gocbcore/v10/memd"

	"github.com/tuskqueue/tusk/internal/cbfake"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/storetest"
)

// without makes all requests for documents whose keys begin with prefix get lost.
func (r *rig) without(prefix string) {
	r.f.Set(cbfake.Faults{Request: func(_ memd.CmdCode, key string) cbfake.Spoil {
		if strings.HasPrefix(key, prefix) {
			return cbfake.LoseRequest
		}
		return cbfake.Sound
	}})
}

// beats makes a's worker beat with a number, as a worker that holds some leases and has seen the answer to its last
// beat.
func (r *rig) beats(seq int64, holds ...store.Token) {
	r.Helper()
	_, err := r.a.Extend(r.ctx(), store.Beat{Worker: store.Worker{ID: r.worker, Queues: []string{"q"}}, TTL: time.Hour,
		Seq: seq, Seen: seq - 1, Holds: holds})
	r.must("extend", err)
}

// doubt is when a claim of a's worker was in doubt; 0 if none is.
func (r *rig) doubt() int64 {
	r.Helper()
	d, err := r.b.read(r.ctx(), workerRef(r.worker.String()))
	r.must("read", err)
	return d.worker().Doubt
}

// While the index does not answer, a claim that failed is repeated all the same. A lease that no intent names is found
// once the index is back, though its worker lives.
func TestAClaimIsRepeatedWithoutTheIndex(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	r.beats(1)
	r.add(r.task("named", nil))
	token := store.NewToken()
	again := store.ClaimRequest{Worker: r.worker, Queues: []string{"q"}, Limit: 10, Token: token}
	first, err := r.a.Claim(r.ctx(), again)
	r.must("claim", err)
	r.add(r.task("unnamed", nil))
	lost := store.NewToken()
	_, err = r.a.Claim(r.ctx(), store.ClaimRequest{Worker: r.worker, Queues: []string{"q"}, Limit: 10, Token: lost})
	r.must("claim", err)
	r.must("lose an intent", r.a.mutate(r.ctx(), r.a.meta, workerKey(r.worker.String()), 0,
		gocb.RemoveSpec(leasePath(lost.String()), nil)))

	r.f.Set(cbfake.Faults{Stuck: true})
	r.a.queryTimeout = 50 * time.Millisecond
	again.Again = true
	second, err := r.a.Claim(r.ctx(), again)
	if err != nil || len(first) != 1 || len(second) != 1 || second[0].ID != first[0].ID {
		t.Fatalf("claimed %d tasks, and by the repeated request %d: %v", len(first), len(second), err)
	}
	r.f.Set(cbfake.Faults{})
	r.end(&second[0], store.Completed)
	r.beats(2)
	r.beats(3)
	strays, err := r.b.Rescue(r.ctx(), r.term, 10)
	if err != nil || len(strays) != 1 || strays[0].ID != r.ids["unnamed"] || !strays[0].Stray {
		t.Fatalf("rescued %v: %v", strays, err)
	}
	r.end(&strays[0], store.Available)
	_, err = r.b.Rescue(r.ctx(), r.term, 10)
	r.must("rescue", err)
	if r.doubt() != 0 {
		t.Error("the worker is still in doubt")
	}
}

// If a worker holds one task under a token, and the intent for another was lost, the doubt stays until the worker no
// longer names the token. Then the other is found.
func TestALostIntentBesideOneThatIsKept(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	r.beats(1)
	r.add(r.task("x", nil), r.task("y", func(n *store.NewTask) { n.Priority = 1 }))
	claim := store.ClaimRequest{Worker: r.worker, Queues: []string{"q"}, Limit: 10, Token: store.NewToken()}
	got, err := r.a.Claim(r.ctx(), claim)
	if err != nil || len(got) != 2 {
		t.Fatalf("claimed %d tasks: %v", len(got), err)
	}
	only := gocb.UpsertSpec(leasePath(claim.Token.String()), []string{got[0].ID.String()}, nil)
	r.must("lose an intent", r.a.mutate(r.ctx(), r.a.meta, workerKey(r.worker.String()), 0, only))
	r.f.Set(cbfake.Faults{Stuck: true})
	r.a.queryTimeout = 50 * time.Millisecond
	claim.Again = true
	if got, err = r.a.Claim(r.ctx(), claim); err != nil || len(got) != 1 {
		t.Fatalf("the repeated request got %d tasks: %v", len(got), err)
	}
	r.f.Set(cbfake.Faults{})
	for seq := int64(2); seq < 4; seq++ {
		r.beats(seq, claim.Token)
	}
	if found, err := r.b.Rescue(r.ctx(), r.term, 10); err != nil || len(found) > 0 || r.doubt() == 0 {
		t.Fatalf("rescued %v of a token that the worker names: %v; in doubt since %d", found, err, r.doubt())
	}
	r.end(&got[0], store.Completed)
	for seq := int64(4); seq < 6; seq++ {
		r.beats(seq)
	}
	if found, err := r.b.Rescue(r.ctx(), r.term, 10); err != nil || len(found) != 1 || found[0].ID != r.ids["y"] {
		t.Errorf("rescued %v: %v", found, err)
	}
}

// If others have written a sheet so often that nobody can tell whether a lease was written, the claim fails, and the
// repeated request finds what it has got.
func TestALeaseThatNobodyCanTell(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	other := storetest.NewID()
	r.beat(r.b, other, time.Hour)
	ids := blocks(40)
	tasks := make([]store.NewTask, len(ids))
	for i, id := range ids {
		tasks[i] = store.NewTask{ID: id, Kind: "k", Queue: "q", Args: []byte("1")}
	}
	r.add(tasks...)
	sheet, _ := block(ids[0].String())
	writes := 0
	r.f.Set(cbfake.Faults{Request: func(code memd.CmdCode, key string) cbfake.Spoil {
		if code != memd.CmdReplace || key != sheet.ID {
			return cbfake.Sound
		}
		switch writes++; writes {
		case 1:
			return cbfake.LoseAnswer
		case 2: // the same again
			for range 12 {
				_, err := r.b.Claim(r.ctx(), store.ClaimRequest{Worker: other, Queues: []string{"q"}, Limit: 1,
					Token: store.NewToken()})
				r.must("claim", err)
			}
		}
		return cbfake.Sound
	}})
	claim := store.ClaimRequest{Worker: r.worker, Queues: []string{"q"}, Limit: 10, Token: store.NewToken()}
	if got, err := r.a.Claim(r.ctx(), claim); err == nil {
		t.Fatalf("the claim got %d tasks", len(got))
	}
	claim.Again = true
	if got, err := r.a.Claim(r.ctx(), claim); err != nil || len(got) != 10 {
		t.Errorf("the repeated request got %d tasks: %v", len(got), err)
	}
}

// An outcome that was written is accepted, whatever becomes of what follows from it.
func TestAnOutcomeIsAcceptedWhateverFollows(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	r.add(r.task("x", nil))
	r.claim()
	o := r.outcome("x", store.Discarded)
	o.Error, o.Fingerprint = "no", "print"
	r.without(groupRef("q", "x", "print").ID)
	lost, err := r.a.Finish(r.ctx(), []store.Outcome{o})
	if len(lost) > 0 || err != nil {
		t.Errorf("lost %v: %v", lost, err)
	}
	if x := r.get(r.ids["x"]); x.State != store.Discarded {
		t.Errorf("the task is %v", x.State)
	}
}

// A lane whose page does not answer holds up no other.
func TestClaimsBesideALaneThatIsAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	r.add(r.task("x", nil), r.task("y", func(n *store.NewTask) { n.Priority = 1 }))
	r.without(lane{"q", 0}.page(1))
	if r.claim(); len(r.held) != 1 || r.held["y"].ID != r.ids["y"] {
		t.Errorf("claimed %v", r.held)
	}
	_, err := r.a.Claim(r.ctx(), store.ClaimRequest{Worker: r.worker, Queues: []string{"q"}, Limit: 1,
		Token: store.NewToken()})
	if err == nil {
		t.Error("a claim that could not look everywhere says that there is nothing")
	}
	r.f.Set(cbfake.Faults{})
	if r.claim(); r.held["x"].ID != r.ids["x"] {
		t.Errorf("claimed %v", r.held)
	}
}

// A worker whose document does not answer holds up the rescue of no other's tasks.
func TestARescueBesideAWorkerThatIsAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	r.add(r.task("x", nil))
	r.claim()
	away := storetest.NewID()
	r.beat(r.b, away, time.Nanosecond)
	r.beat(r.b, r.worker, time.Nanosecond)
	r.without(workerKey(away.String()))
	if dead, err := r.b.Rescue(r.ctx(), r.term, 10); err != nil || len(dead) != 1 || dead[0].ID != r.ids["x"] {
		t.Errorf("rescued %v: %v", dead, err)
	}
}

// A task that somebody has given a due time that is no number holds up no other.
func TestAdmissionsBesideADueTimeThatIsNoNumber(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	soon := func(n *store.NewTask) { n.Delay = time.Millisecond }
	r.add(r.task("x", soon), r.task("y", soon))
	r.spoilField(r.b.tasks, r.ids["x"].String(), "due", "tomorrow")
	time.Sleep(20 * time.Millisecond)
	if _, err := r.b.Admit(r.ctx(), r.term, 10); err != nil {
		t.Errorf("admit: %v", err)
	}
	if r.claim(); r.held["y"].ID != r.ids["y"] {
		t.Errorf("claimed %v", r.held)
	}
}

// Groups of errors go with the statistics, once no task is dead because of them.
func TestOldGroupsOfErrorsAreDeleted(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	r.add(r.task("x", nil), r.task("y", nil))
	r.claim()
	for _, name := range []string{"x", "y"} {
		o := r.outcome(name, store.Discarded)
		o.Error, o.Fingerprint = "no", name
		r.must("finish", r.finish(r.ctx(), o))
	}
	_, err := r.b.Edit(r.ctx(), store.Edit{IDs: []store.ID{r.ids["x"]}, Change: store.Change{Op: store.Delete}})
	r.must("delete", err)
	time.Sleep(5 * time.Millisecond)
	_, err = r.b.Prune(r.ctx(), r.term, store.Retention{Stats: time.Millisecond}, 10)
	r.must("prune", err)
	left, err := r.b.Errors(r.ctx(), store.ErrorFilter{})
	if err != nil || len(left) != 1 || left[0].Kind != "y" || left[0].Dead != 1 {
		t.Errorf("left are %+v: %v", left, err)
	}
}

// While the index cannot be asked, the tasks that dead workers meant to lease are still rescued. A round waits for the
// index once, however many workers have died.
func TestARescueWithoutAnIndex(t *testing.T) {
	r := newRig(t, 1)
	r.add(r.task("x", nil))
	r.claim()
	r.b.queryTimeout = 100 * time.Millisecond
	r.f.DropIndex("tusk", "tusk_run")
	r.beat(r.b, r.worker, time.Nanosecond)
	for range 5 {
		r.beat(r.b, storetest.NewID(), time.Nanosecond) // these hold nothing
	}
	before := r.f.Queries()
	dead, err := r.b.Rescue(r.ctx(), r.term, 10)
	r.must("rescue", err)
	if asked := r.f.Queries() - before; len(dead) != 1 || dead[0].ID != r.ids["x"] || asked != 0 {
		t.Fatalf("rescued %d tasks, and asked the index %d times", len(dead), asked)
	}
	r.end(&dead[0], store.Completed)
	dead, err = r.b.Rescue(r.ctx(), r.term, 10)
	if asked := r.f.Queries() - before; len(dead) != 0 || err == nil || asked != 1 {
		t.Errorf("rescued %d tasks, and asked the index %d times: %v", len(dead), asked, err)
	}
}
