package ledgers

import (
	"context"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// A worker with late calls to many ledgers of a server signs off. It waits for all of them together, and has half of
// its time left to tell the ledgers.
func TestASignOffDoesNotUseUpItsTime(t *testing.T) {
	at, s, worker := new(server), new(Store), store.ID(store.NewToken())
	s.life, s.close = context.WithCancel(context.Background())
	defer s.close()
	s.known.Store(&[]*server{at})
	var all []*ledger
	for no := range 6 {
		l := newLedger(s, no, "tusk")
		l.at = at
		all = append(all, l)
		at.debt.add(&request{l: l, at: at, r: store.ClaimRequest{Worker: worker}, settled: make(chan struct{})})
	}
	s.all.Store(&all)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	began := time.Now()
	_, _ = s.Extend(ctx, store.Beat{Worker: store.Worker{ID: worker}}) // all ledgers are away
	if took := time.Since(began); took < 900*time.Millisecond || took > 1500*time.Millisecond {
		t.Errorf("it waited for %v of its 2 s, want 1 s", took)
	}
}
