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

// The leader cannot look for all leases of a dead worker, because one of the tasks has changed meanwhile. It looks
// again, and finds a lease that arrives after that.
func TestADeadWorkerIsListedUntilAllItsLeasesWereLookedFor(t *testing.T) {
	r := newRig(t, 1)
	x, y := r.task("x", nil), r.task("y", nil)
	r.add(x, y)
	other := openFake(t, r.f)
	arrives, goOn, changed := make(chan bool), make(chan bool), false
	var leases, looks atomic.Int64
	r.f.Set(cbfake.Faults{Request: func(c memd.CmdCode, k string) cbfake.Spoil {
		switch {
		case c != memd.CmdReplace || k != x.ID.String() && k != y.ID.String():
		case leases.Add(1) == 1: // the other one comes after it
			close(arrives)
			<-goOn
		case k == x.ID.String() && looks.Add(1) == 1: // the leader looks for it
			d, err := other.read(r.ctx(), taskRef(x.ID))
			if err == nil {
				changed, err = other.write(r.ctx(), d)
			}
			if err != nil {
				t.Errorf("change: %v", err)
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
	close(goOn)
	if r.must("rescue", err); len(held) > 0 || !changed {
		t.Errorf("%d are rescued; changed: %v", len(held), changed)
	}
	<-claimed
	held, err = r.b.Rescue(r.ctx(), r.term, 100)
	if r.must("rescue", err); len(held) != 1 || held[0].ID != y.ID {
		t.Errorf("%d are rescued", len(held))
	}
	for i := range held {
		r.end(&held[i], store.Available)
	}
	r.drain()
}
