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
