package archive

import (
	"context"
	"errors"
	"testing"

	"github.com/tuskqueue/tusk/store"
)

// Lookups hold pages of files in memory, so only some run at a time. The others wait until their contexts end.
func TestOnlySomeLookupsRunAtATime(t *testing.T) {
	a := New(nil, "")
	if !a.finding.TryAcquire(mostFinding) {
		t.Fatal("a lookup is in progress")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.Find(ctx, store.ID{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
