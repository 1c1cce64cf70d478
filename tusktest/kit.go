// Package tusktest helps users of Tusk to test their code: it records what the code
// enqueues, runs tasks one by one or until nothing is left, and has a clock that a test
// moves. Everything it runs is the real thing: a worker, its retries and limits, and an
// engine, in memory or the user's own database.
//
// It may import package tusk, the stores and package testing. Nothing imports it but tests.
package tusktest

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// Kit is a client whose enqueues are recorded. It is safe for use by many goroutines.
type Kit struct {
	// Client is what the code under test enqueues with.
	Client *tusk.Client

	t    testing.TB
	gate *gate

	mu       sync.Mutex
	enqueued []store.NewTask
	inline   *Worker // runs tasks as soon as they are enqueued; nil: nobody does
}

// New makes a kit on an engine, with the client's configuration; config may be nil. The
// engine must have its schema, and should be the test's own: workers of the kit run
// whatever they find in their queues.
func New(t testing.TB, s store.Store, config *tusk.ClientConfig) *Kit {
	t.Helper()
	var c tusk.ClientConfig
	if config != nil {
		c = *config
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	k := &Kit{t: t, gate: &gate{Store: s}}
	c.BeforeEnqueue = append(slices.Clone(c.BeforeEnqueue), k.record)
	client, err := tusk.NewClient(k.gate, &c)
	if err != nil {
		t.Fatalf("tusktest: %v", err)
	}
	k.Client = client
	k.gate.stored = k.runInline
	return k
}

// Memory makes a kit on an engine in memory.
func Memory(t testing.TB) *Kit {
	t.Helper()
	return New(t, memory.New(), nil)
}

// record keeps what is about to be stored, inside a transaction or not.
func (k *Kit) record(_ context.Context, tasks []store.NewTask) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, n := range tasks {
		n.Args, n.Tags = slices.Clone(n.Args), slices.Clone(n.Tags)
		k.enqueued = append(k.enqueued, n)
	}
	return nil
}

// Reset forgets what was enqueued so far. Stored tasks stay.
func (k *Kit) Reset() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.enqueued = nil
}

// runInline runs what was just enqueued, unless a task that runs inline enqueued it: the
// run that is under way comes to it.
func (k *Kit) runInline() {
	k.mu.Lock()
	w := k.inline
	k.mu.Unlock()
	if w != nil && w.busy.TryLock() {
		defer w.busy.Unlock()
		w.drain()
	}
}
