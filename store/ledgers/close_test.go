package ledgers

import (
	"context"
	"sync"
	"testing"
)

// Close waits for everything that runs in the background, and nothing starts after it. The race detector would find a
// start beside the wait.
func TestNothingStartsAfterClose(t *testing.T) {
	for range 200 {
		s := &Store{}
		s.life, s.close = context.WithCancel(t.Context())
		s.known.Store(new([]*server))
		s.all.Store(new([]*ledger))
		var done sync.WaitGroup
		for no := range 3 {
			done.Go(newLedger(s, no, "").suspect)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		done.Wait()
	}
}
