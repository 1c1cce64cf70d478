package storetest

import (
	"context"
	"sync"

	"github.com/tuskqueue/tusk/store"
)

// Fault is a deliberate failure.
type Fault struct {
	Method string // of store.Store
	Call   int    // the first call that fails, counted from 1
	Times  int    // how many consecutive calls fail; 0 means 1
	After  bool   // the call takes effect, but its answer is lost
	Err    error  // the error that the caller gets
}

// Faulty is a store that fails on purpose, for tests of code that uses a store. Create one with
// NewFaulty.
type Faulty struct {
	inner  store.Store
	faults []Fault

	mu    sync.Mutex
	calls map[string]int
}

var _ store.Store = (*Faulty)(nil)

// NewFaulty returns a store that passes calls to s, except for the faults.
func NewFaulty(s store.Store, faults ...Fault) *Faulty {
	return &Faulty{inner: s, faults: faults, calls: map[string]int{}}
}

// Unwrap returns the underlying store.
func (f *Faulty) Unwrap() store.Store { return f.inner }

// Calls returns how often each method was called, including failed calls.
func (f *Faulty) Calls() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := make(map[string]int, len(f.calls))
	for method, n := range f.calls {
		calls[method] = n
	}
	return calls
}

// next counts a call and returns the fault for it, or nil if there is none.
func (f *Faulty) next(method string) *Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[method]++
	n := f.calls[method]
	for i, fault := range f.faults {
		if fault.Method == method && fault.Call <= n && n < fault.Call+max(fault.Times, 1) {
			return &f.faults[i]
		}
	}
	return nil
}

// through makes a call, or fails instead, or loses its answer.
func through[V any](f *Faulty, method string, call func() (V, error)) (answer V, err error) {
	fault := f.next(method)
	if fault == nil {
		return call()
	}
	if fault.After {
		call()
	}
	return answer, fault.Err
}

// Enqueue implements store.Enqueuer.
func (f *Faulty) Enqueue(ctx context.Context, tasks []store.NewTask) ([]store.Enqueued, error) {
	return through(f, "Enqueue", func() ([]store.Enqueued, error) { return f.inner.Enqueue(ctx, tasks) })
}

// Claim implements store.Leaser.
func (f *Faulty) Claim(ctx context.Context, r store.ClaimRequest) ([]store.Task, error) {
	return through(f, "Claim", func() ([]store.Task, error) { return f.inner.Claim(ctx, r) })
}

// Extend implements store.Leaser.
func (f *Faulty) Extend(ctx context.Context, b store.Beat) ([]store.Stop, error) {
	return through(f, "Extend", func() ([]store.Stop, error) { return f.inner.Extend(ctx, b) })
}

// Finish implements store.Leaser.
func (f *Faulty) Finish(ctx context.Context, outcomes []store.Outcome) ([]store.ID, error) {
	return through(f, "Finish", func() ([]store.ID, error) { return f.inner.Finish(ctx, outcomes) })
}

// Lead implements store.Keeper.
func (f *Faulty) Lead(ctx context.Context, c store.Candidate) (store.Leadership, error) {
	return through(f, "Lead", func() (store.Leadership, error) { return f.inner.Lead(ctx, c) })
}

// Admit implements store.Keeper.
func (f *Faulty) Admit(ctx context.Context, term int64, limit int) (store.Admitted, error) {
	return through(f, "Admit", func() (store.Admitted, error) { return f.inner.Admit(ctx, term, limit) })
}

// Turns implements store.Keeper.
func (f *Faulty) Turns(ctx context.Context, term int64, groups, heads int) ([]store.Turns, error) {
	return through(f, "Turns", func() ([]store.Turns, error) { return f.inner.Turns(ctx, term, groups, heads) })
}

// Grant implements store.Keeper.
func (f *Faulty) Grant(ctx context.Context, term int64, ids []store.ID) (int, error) {
	return through(f, "Grant", func() (int, error) { return f.inner.Grant(ctx, term, ids) })
}

// Rescue implements store.Keeper.
func (f *Faulty) Rescue(ctx context.Context, term int64, limit int) ([]store.Task, error) {
	return through(f, "Rescue", func() ([]store.Task, error) { return f.inner.Rescue(ctx, term, limit) })
}

// Prune implements store.Keeper.
func (f *Faulty) Prune(ctx context.Context, term int64, keep store.Retention, limit int) (int, error) {
	return through(f, "Prune", func() (int, error) { return f.inner.Prune(ctx, term, keep, limit) })
}

// List implements store.Reader.
func (f *Faulty) List(ctx context.Context, filter store.Filter) ([]store.Task, error) {
	return through(f, "List", func() ([]store.Task, error) { return f.inner.List(ctx, filter) })
}

// Count implements store.Reader.
func (f *Faulty) Count(ctx context.Context) ([]store.Count, error) {
	return through(f, "Count", func() ([]store.Count, error) { return f.inner.Count(ctx) })
}

// Stats implements store.Reader.
func (f *Faulty) Stats(ctx context.Context, filter store.StatsFilter) ([]store.Stat, error) {
	return through(f, "Stats", func() ([]store.Stat, error) { return f.inner.Stats(ctx, filter) })
}

// Errors implements store.Reader.
func (f *Faulty) Errors(ctx context.Context, filter store.ErrorFilter) ([]store.ErrorGroup, error) {
	return through(f, "Errors", func() ([]store.ErrorGroup, error) { return f.inner.Errors(ctx, filter) })
}

// Workers implements store.Reader.
func (f *Faulty) Workers(ctx context.Context) ([]store.Worker, error) {
	return through(f, "Workers", func() ([]store.Worker, error) { return f.inner.Workers(ctx) })
}

// Edit implements store.Editor.
func (f *Faulty) Edit(ctx context.Context, e store.Edit) ([]store.Edited, error) {
	return through(f, "Edit", func() ([]store.Edited, error) { return f.inner.Edit(ctx, e) })
}

// Records implements store.Recorder.
func (f *Faulty) Records(ctx context.Context, r store.RecordFilter) ([]store.Record, error) {
	return through(f, "Records", func() ([]store.Record, error) { return f.inner.Records(ctx, r) })
}

// UpdateRecords implements store.Recorder.
func (f *Faulty) UpdateRecords(ctx context.Context, term int64, puts []store.PutRecord) ([]store.Updated, error) {
	return through(f, "UpdateRecords", func() ([]store.Updated, error) { return f.inner.UpdateRecords(ctx, term, puts) })
}

// PutRecord implements store.Recorder.
func (f *Faulty) PutRecord(
	ctx context.Context, p store.PutRecord,
) (version int64, results []store.Enqueued, err error) {
	version, err = through(f, "PutRecord", func() (version int64, err error) {
		version, results, err = f.inner.PutRecord(ctx, p)
		return version, err
	})
	if err != nil {
		results = nil
	}
	return version, results, err
}
