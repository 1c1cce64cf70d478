package couchbase

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/couchbase/gocbcore/v10/memd"

	"github.com/tuskqueue/tusk/internal/cbfake"
	"github.com/tuskqueue/tusk/store"
)

// A worker stands still between its intent and its lease, and is declared dead meanwhile. The lease, which arrives
// after the leader has looked for it, must not be taken: nobody would look for it again.
func TestALeaseThatArrivesAfterTheDeathOfItsWorker(t *testing.T) {
	for name, n := range map[string]int{"task": 1, "sheet": 10} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1)
			tasks := r.alike(n)
			r.add(tasks...)
			at := tasks[0].ID.String()
			if n > 1 {
				of, _ := block(at)
				at = of.ID
			}
			arrives, goOn := make(chan bool), make(chan bool)
			var met atomic.Bool
			r.f.Set(cbfake.Faults{Request: func(c memd.CmdCode, k string) cbfake.Spoil {
				if c == memd.CmdReplace && k == at && met.CompareAndSwap(false, true) {
					close(arrives)
					<-goOn
				}
				return cbfake.Sound
			}})
			claimed := make(chan int)
			go func() {
				got, _ := r.a.Claim(r.ctx(), store.ClaimRequest{Worker: r.worker, Queues: []string{"q"}, Limit: 100,
					Token: store.NewToken()})
				claimed <- len(got)
			}()
			<-arrives
			r.beat(r.b, r.worker, time.Microsecond)
			for range 4 {
				time.Sleep(time.Millisecond)
				if held, err := r.b.Rescue(r.ctx(), r.term, 100); err != nil || len(held) > 0 {
					t.Errorf("rescued: %d, %v", len(held), err)
				}
			}
			close(goOn)
			if got := <-claimed; got > 0 {
				t.Errorf("a dead worker has claimed %d tasks", got)
			}
			r.drain()
		})
	}
}

// The leases of a worker that was declared dead arrive just before the leader writes the tasks again. The index finds
// them, and the intent stays, by which the leader looks again.
func TestADeadWorkerIsListedUntilAllItsLeasesWereLookedFor(t *testing.T) {
	r := newRig(t, 1)
	x, y := r.task("x", nil), r.task("y", nil)
	r.add(x, y)
	other := openFake(t, r.f)
	leased := func() (n int) {
		for _, id := range []store.ID{x.ID, y.ID} {
			if d, err := other.read(r.ctx(), taskRef(id)); err != nil {
				t.Errorf("read: %v", err)
			} else if d.task().State == "r" {
				n++
			}
		}
		return n
	}
	arrives, goOn := make(chan bool), make(chan bool)
	var writes atomic.Int64
	r.f.Set(cbfake.Faults{Request: func(c memd.CmdCode, k string) cbfake.Spoil {
		if c != memd.CmdReplace || k != x.ID.String() && k != y.ID.String() {
			return cbfake.Sound
		}
		switch writes.Add(1) {
		case 1: // a lease; the other one comes after it, on the same connection
			close(arrives)
			<-goOn
		case 2: // the leader's
			close(goOn)
			for end := time.Now().Add(10 * time.Second); leased() < 2 && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
		}
		return cbfake.Sound
	}})
	claimed := make(chan bool)
	go func() {
		_, _ = r.a.Claim(r.ctx(), store.ClaimRequest{Worker: r.worker, Queues: []string{"q"}, Limit: 100,
			Token: store.NewToken()})
		close(claimed)
	}()
	<-arrives
	r.beat(r.b, r.worker, time.Microsecond)
	time.Sleep(time.Millisecond)
	held, err := r.b.Rescue(r.ctx(), r.term, 100)
	<-claimed
	if r.must("rescue", err); len(held) != 2 || leased() != 2 {
		t.Fatalf("%d of %d are rescued", len(held), leased())
	}
	if len(r.intents()) != 1 {
		t.Error("the intent is gone, although the leases were not refused")
	}
	for i := range held {
		r.end(&held[i], store.Available)
	}
	r.drain()
}
