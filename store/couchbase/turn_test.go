package couchbase

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/couchbase/gocbcore/v10/memd"

	"github.com/tuskqueue/tusk/internal/cbfake"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/storetest"
)

// vbucketOf is the hash by which clients find the node of a document.
func (r *rig) vbucketOf(id store.ID) int {
	return int(crc32.ChecksumIEEE([]byte(id.String()))>>16) & 0x7fff % r.f.Vbuckets()
}

// beside makes a task whose document is in the same vbucket as another's, or in a different one.
func (r *rig) beside(name string, other store.ID, same bool, change func(n *store.NewTask)) store.NewTask {
	for {
		if n := r.task(name, change); (r.vbucketOf(n.ID) == r.vbucketOf(other)) == same {
			return n
		}
	}
}

// The index lags, and an index that knows what the leader has written need not know what others wrote earlier. The
// leader gives no turn to a task while an older one that it cannot see waits.
func TestTurnsKeepTheirOrderWhileTheIndexIsBehind(t *testing.T) {
	r := newRig(t, 1)
	_, err := r.b.Turns(r.ctx(), r.term, 10, 10) // it has been leading for a while
	r.must("turns", err)
	r.f.Set(cbfake.Faults{Lag: time.Hour})
	first := r.task("first", inTurns)
	_, err = r.a.Enqueue(r.ctx(), []store.NewTask{first})
	r.must("enqueue", err)
	second := r.beside("second", first.ID, false, inTurns)
	_, err = r.a.Enqueue(r.ctx(), []store.NewTask{second})
	r.must("enqueue", err)
	r.add(r.beside("leader's", second.ID, true, nil)) // an index that knows this one knows the second
	turns, err := r.b.Turns(r.ctx(), r.term, 10, 10)
	r.must("turns", err)
	if len(turns) != 1 || !slices.Equal(turns[0].Waiting, []store.ID{first.ID, second.ID}) {
		t.Errorf("first is %v, second %v, and these wait: %+v", first.ID, second.ID, turns)
	}
}

// A leader whose first round got no answer knows in the next one what the leader before it has granted.
func TestTurnsThatAnotherLeaderGrantedCountAfterAFailedRound(t *testing.T) {
	r := newRig(t, 1)
	r.f.Set(cbfake.Faults{Lag: time.Hour})
	x := r.task("x", inTurns)
	r.add(x)
	n, err := r.a.Grant(r.ctx(), r.term, []store.ID{x.ID})
	if r.must("grant", err); n != 1 {
		t.Fatalf("%d turns are granted", n)
	}
	within := r.b.queryTimeout
	r.b.queryTimeout = time.Nanosecond
	if _, err := r.b.Turns(r.ctx(), r.term, 10, 10); err == nil {
		t.Fatal("the round has an answer")
	}
	r.b.queryTimeout = within
	turns, err := r.b.Turns(r.ctx(), r.term, 10, 10)
	r.must("turns", err)
	if len(turns) != 1 || turns[0].Held != 1 || len(turns[0].Waiting) != 0 {
		t.Errorf("the turn that was granted does not count: %+v", turns)
	}
}

// Another process takes the lead just before a grant is decided. Nothing is granted.
func TestALeaderThatIsReplacedGrantsNothing(t *testing.T) {
	r := newRig(t, 1)
	x := r.task("x", inTurns)
	r.add(x)
	old := r.term
	var met atomic.Bool
	r.f.Set(cbfake.Faults{Request: func(code memd.CmdCode, key string) cbfake.Spoil {
		if code == memd.CmdReplace && key == leaderRef.ID && met.CompareAndSwap(false, true) {
			_, err := r.b.Lead(r.ctx(), store.Candidate{ID: r.leader, Term: r.term})
			if err != nil {
				t.Errorf("resign: %v", err)
			}
			r.leader = storetest.NewID()
			r.lead()
		}
		return cbfake.Sound
	}})
	n, err := r.a.Grant(r.ctx(), old, []store.ID{x.ID})
	r.f.Set(cbfake.Faults{})
	if !errors.Is(err, store.ErrNotLeader) || n != 0 || !met.Load() {
		t.Errorf("%d turns are granted: %v", n, err)
	}
	turns, err := r.b.Turns(r.ctx(), r.term, 10, 10)
	r.must("turns", err)
	if len(turns) != 1 || turns[0].Held != 0 || len(turns[0].Waiting) != 1 {
		t.Errorf("the turns are %+v", turns)
	}
	r.drain()
	r.all(true, "x")
}

// A leader dies once it has decided a grant. Others take the lead at once, and the turn counts.
func TestATurnThatADeadLeaderHasDecidedCounts(t *testing.T) {
	r := newRig(t, 1)
	x := r.task("x", inTurns)
	r.add(x)
	ctx, die := context.WithCancel(r.ctx())
	var decided, dead atomic.Bool
	r.f.Set(cbfake.Faults{Request: func(code memd.CmdCode, key string) cbfake.Spoil {
		if decided.Load() && dead.CompareAndSwap(false, true) {
			die()
		}
		if dead.Load() {
			return cbfake.LoseRequest
		}
		if code == memd.CmdReplace && key == leaderRef.ID {
			decided.Store(true)
		}
		return cbfake.Sound
	}})
	_, _ = r.a.Grant(ctx, r.term, []store.ID{x.ID})
	r.a.Close()
	r.f.HangUp()
	r.f.Set(cbfake.Faults{})
	if d, err := r.b.read(r.ctx(), leaderRef); err != nil || d.header().Unit == nil {
		t.Fatalf("the leader's document has no unit: %v", err)
	}
	within := r.b.patience
	r.b.patience = time.Hour
	r.lead() // this waits for nobody
	soon, cancel := context.WithTimeout(r.ctx(), 10*time.Second)
	defer cancel()
	_, err := r.b.Turns(soon, 0, 10, 10) // nor does who only looks
	r.must("turns", err)
	r.b.patience = within
	turns, err := r.b.Turns(r.ctx(), r.term, 10, 10)
	r.must("turns", err)
	if len(turns) != 1 || turns[0].Held != 1 || len(turns[0].Waiting) != 0 {
		t.Errorf("the turns are %+v", turns)
	}
	r.drain()
	r.all(true, "x")
}

// The leader renews its term between the decision of a grant and its end. The grant leaves nothing to others.
func TestAGrantEndsWhileTheTermIsRenewed(t *testing.T) {
	r := newRig(t, 1)
	x := r.task("x", inTurns)
	r.add(x)
	var writes atomic.Int64
	r.f.Set(cbfake.Faults{Request: func(code memd.CmdCode, key string) cbfake.Spoil {
		if code == memd.CmdReplace && key == leaderRef.ID && writes.Add(1) == 2 { // the one that removes the unit
			r.lead()
		}
		return cbfake.Sound
	}})
	n, err := r.a.Grant(r.ctx(), r.term, []store.ID{x.ID})
	r.f.Set(cbfake.Faults{})
	if r.must("grant", err); n != 1 || writes.Load() < 3 {
		t.Fatalf("%d turns are granted, by %d writes of the leader's document", n, writes.Load())
	}
	d, err := r.b.read(r.ctx(), leaderRef)
	if r.must("read", err); d.header().open() {
		t.Error("the leader's document still has the unit")
	}
}

// Tasks whose args are too large together for one unit get their turns in several.
func TestTurnsOfLargeTasks(t *testing.T) {
	r := newRig(t, 1)
	var tasks []store.NewTask
	var ids []store.ID
	for i := range 2 {
		tasks = append(tasks, r.task(fmt.Sprint("x", i), func(n *store.NewTask) {
			n.Turn, n.Args = true, []byte(`"`+strings.Repeat("x", 5<<20)+`"`)
		}))
		ids = append(ids, tasks[i].ID)
	}
	for _, n := range tasks {
		r.add(n)
	}
	n, err := r.a.Grant(r.ctx(), r.term, ids)
	if r.must("grant", err); n != 2 {
		t.Errorf("%d of 2 turns are granted", n)
	}
}

// The first tasks in line of many tenants are read by one query while few wait, and by one for each tenant otherwise.
// Both answer the same.
func TestTheFirstInLine(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	const tenants, each = 40, 3
	first := map[string][]store.ID{}
	var tasks []store.NewTask
	for i := range tenants {
		tenant := fmt.Sprint("tenant", i)
		for range each {
			tasks = append(tasks, r.task("x", func(n *store.NewTask) { n.Tenant, n.Turn = tenant, true }))
			first[tenant] = append(first[tenant], tasks[len(tasks)-1].ID)
		}
	}
	r.add(tasks...)
	look := func(groups, queries int) {
		t.Helper()
		before := r.f.Queries()
		turns, err := r.b.Turns(r.ctx(), r.term, 100, 2)
		r.must("turns", err)
		if asked := r.f.Queries() - before; len(turns) != groups || asked != int64(queries) {
			t.Errorf("%d groups by %d queries", len(turns), asked)
		}
		for _, of := range turns {
			if want := first[of.Tenant]; want != nil && !slices.Equal(of.Waiting, want[:2]) {
				t.Errorf("%s: %v are first, want %v", of.Tenant, of.Waiting, want[:2])
			}
		}
	}
	look(tenants, 3)
	var more []store.NewTask
	for range fewInLine {
		more = append(more, store.NewTask{ID: storetest.NewID(), Kind: "x", Queue: "q", Tenant: "big", Turn: true,
			Args: []byte("1")})
	}
	r.add(more...)
	look(tenants+1, 2+tenants+1)
}
