package archive

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store/memory"
	"github.com/tuskqueue/tusk/store/storetest"
)

// Somebody asks an object store that hangs. Others have to wait no longer than they want to.
func TestWhoHasADeadlineDoesNotWaitForSomebodyElsesRequest(t *testing.T) {
	b, _ := place(t)
	tasks := mixed(10)
	shelve(t, b, tasks)
	a, p := New(b, t.TempDir()), NewPayloads(memory.New(), b, storetest.NewID)
	if _, err := a.Find(t.Context(), tasks[1].ID); err != nil { // it caches the catalogue
		t.Fatal(err)
	}
	if err := errors.Join(a.asking.Enter(t.Context()), p.claiming.Enter(t.Context())); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Find(t.Context(), tasks[1].ID); err != nil {
		t.Errorf("a task that is known needs the catalogue: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := a.Find(ctx, storetest.NewID()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a search: %v", err)
	}
	if err := p.Claim(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a claim: %v", err)
	}
}

// Many look for tasks that nobody has. Those who wait for the catalogue share the next look at it.
func TestLookupsThatWaitShareALook(t *testing.T) {
	b, _ := place(t)
	shelve(t, b, mixed(10))
	a := New(b, t.TempDir())
	if err := a.asking.Enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	const many = 20
	ended := make(chan error, many)
	for range many {
		go func() {
			_, _, err := a.catalogued(t.Context(), true)
			ended <- err
		}()
	}
	time.Sleep(100 * time.Millisecond) // all of them wait by now
	before := a.requests.Load()
	a.asking.Leave()
	for range many {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if n := a.requests.Load() - before; n > 4 {
		t.Errorf("%d requests were made for %d lookups", n, many)
	}
	if _, _, err := a.catalogued(t.Context(), true); err != nil || a.requests.Load() == before {
		t.Errorf("a later call makes no request: %v", err)
	}
}
