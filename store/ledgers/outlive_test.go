package ledgers_test

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
	"github.com/tuskqueue/tusk/store/storetest/wires"
)

// The server is killed, but its busy backends live on: connections that are open still work, new ones are refused, and
// that of the listener ends. The ledger is away, so nothing is stored there.
func TestAServerWhoseBackendsOutliveItIsAway(t *testing.T) {
	_, dsns := servers(t, 2)
	if err := divide(2, dsns...); err != nil {
		t.Fatal(err)
	}
	var killed atomic.Bool
	var listeners sync.Map // the connections that listen
	_, through := wires.Start(t, dsns[1], func(w *wires.Wire) wires.Pass {
		refused := killed.Load()
		return func(piece []byte, up bool) ([]byte, bool) {
			if up && bytes.Contains(piece, []byte("listen ")) {
				listeners.Store(w, true)
			}
			return piece, !refused
		}
	})
	s := open(t, dsns[0], through)
	listening, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { _ = s.Listen(listening, func(store.Hint) {}) })
	defer done.Wait()
	defer cancel()
	eventually(t, "it hears of tasks", func() bool { return ledgers.Hears(s, 1) })
	killed.Store(true)
	listeners.Range(func(w, _ any) bool { w.(*wires.Wire).Client.Close(); return true })
	eventually(t, "the ledger is away", func() bool {
		_, err := s.Count(context.Background()) // by an open connection
		return err != nil && strings.Contains(err.Error(), "it is away")
	})
	killed.Store(false)
	eventually(t, "the ledger is back", func() bool {
		_, err := s.Count(context.Background())
		return err == nil
	})
}
