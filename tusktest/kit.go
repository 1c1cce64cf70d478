// Package tusktest helps users of Tusk to test their code. It records what the code
// enqueues, runs tasks one by one or until none is left, and can move the clock. It uses a
// real worker, with retries and limits, and a real engine, in memory or in the user's own
// database.
//
// It may import package tusk, the stores and package testing. Only tests import it.
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
	inline   *Worker // runs tasks as soon as they are enqueued; nil if none does
}

// New creates a kit on an engine, with the configuration of its client. config may be nil.
// The engine must have its schema, and should not be shared with others: workers of the kit
// run everything in their queues.
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

// Memory creates a kit on an engine in memory.
func Memory(t testing.TB) *Kit {
	t.Helper()
	return New(t, memory.New(), nil)
}

// record records tasks that are about to be stored, inside a transaction or not.
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

// runInline runs the tasks that were just enqueued. If a task that runs inline enqueued
// them, the run in progress runs them.
func (k *Kit) runInline() {
	k.mu.Lock()
	w := k.inline
	k.mu.Unlock()
	if w != nil && w.busy.TryLock() {
		defer w.busy.Unlock()
		w.drain()
	}
}
