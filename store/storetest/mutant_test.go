package storetest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// This tests the tests: an engine that breaks a promise must fail a clause.
func TestEveryBrokenPromiseIsNoticed(t *testing.T) {
	calm, racy := clauses(), slices.Concat(raceClauses, needRaceClauses)
	calm = calm[:len(calm)-len(racy)]
	var running sync.WaitGroup
	places := make(chan bool, 8) // clauses mostly sleep
	for name, mutate := range mutants {
		places <- true
		running.Go(func() {
			caught := failing(t, calm, impatient, 1, mutate)
			if len(caught) == 0 {
				caught = failing(t, racy, impatient, 1, mutate) // these take longer
			}
			if <-places; len(caught) == 0 {
				t.Errorf("%s: no clause notices", name)
			}
			for _, by := range caught {
				t.Logf("%s: noticed by %.200s", name, by)
			}
		})
	}
	running.Wait()
}

func TestNothingIsNoticedWithoutAReason(t *testing.T) {
	all := clauses()
	for _, by := range failing(t, all, time.Minute, len(all), func(*mutant) {}) {
		t.Error(by)
	}
}

// failing returns clauses that a mutant of the store in memory fails, with their failures. As soon as there are
// enough of them, the others are given up.
func failing(t *testing.T, of []clause, patience time.Duration, enough int, mutate func(*mutant)) []string {
	var mu sync.Mutex
	var all sync.WaitGroup
	var caught []string
	var over atomic.Bool
	for _, c := range of {
		all.Go(func() {
			failure := (&recorder{TB: t}).try(c, patience, &over, mutate)
			mu.Lock()
			defer mu.Unlock()
			if failure != "" && !over.Load() {
				caught = append(caught, c.name+": "+failure)
				over.Store(len(caught) >= enough)
			}
		})
	}
	all.Wait()
	slices.Sort(caught)
	return caught
}

// impatient is how long a clause may wait for something that a mutant never does.
const impatient = 3 * time.Second

// recorder records the failures of a test that is expected to fail.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	failure  string // the first one
	skipped  bool   // the clause does not concern the engine
	cleanups []func()
}

// try runs a clause and returns its failure, if any. Once over is set, the clause is given up.
func (r *recorder) try(c clause, patience time.Duration, over *atomic.Bool, mutate func(*mutant)) string {
	m := &mutant{Store: memory.New(), ends: time.Now().Add(patience), over: over}
	mutate(m)
	e := Engine{New: func(testing.TB) func() store.Store { return func() store.Store { return m } }}
	var done sync.WaitGroup
	done.Go(func() {
		ended := false
		defer func() {
			if p := recover(); p != nil {
				r.note(fmt.Sprint("panic: ", p))
			} else if !ended && !r.skipped {
				r.note("gave up")
			}
		}()
		c.check(newT(r, e))
		ended = true
	})
	done.Wait()
	r.mu.Lock() // a goroutine of the clause may continue after the clause has failed
	cleanups := slices.Clone(r.cleanups)
	r.mu.Unlock()
	for _, f := range slices.Backward(cleanups) {
		f()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failure
}

func (r *recorder) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure == "" {
		r.failure = text
	}
}

func (r *recorder) Helper()                        {}
func (r *recorder) Log(...any)                     {}
func (r *recorder) Logf(string, ...any)            {}
func (r *recorder) Fail()                          { r.note("failed") }
func (r *recorder) FailNow()                       { r.note("failed"); runtime.Goexit() }
func (r *recorder) Error(args ...any)              { r.note(fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, a ...any) { r.note(fmt.Sprintf(format, a...)) }
func (r *recorder) Fatal(args ...any)              { r.note(fmt.Sprint(args...)); runtime.Goexit() }
func (r *recorder) Fatalf(format string, a ...any) {
	r.note(fmt.Sprintf(format, a...))
	runtime.Goexit()
}
func (r *recorder) Skip(...any) { r.skipped = true; runtime.Goexit() }

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failure != ""
}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

// mutant is the store in memory with a fault: a method that is set replaces the store's own.
type mutant struct {
	*memory.Store
	ends time.Time
	over *atomic.Bool

	mu      sync.Mutex // guards what a fault remembers
	enqueue func(context.Context, []store.NewTask) ([]store.Enqueued, error)
	claim   func(context.Context, store.ClaimRequest) ([]store.Task, error)
	extend  func(context.Context, store.Beat) ([]store.Stop, error)
	finish  func(context.Context, []store.Outcome) ([]store.ID, error)
	lead    func(context.Context, store.Candidate) (store.Leadership, error)
	admit   func(context.Context, int64, int) (store.Admitted, error)
	rescue  func(context.Context, int64, int) ([]store.Task, error)
	prune   func(context.Context, int64, store.Retention, int) (int, error)
	list    func(context.Context, store.Filter) ([]store.Task, error)
	count   func(context.Context) ([]store.Count, error)
	stats   func(context.Context, store.StatsFilter) ([]store.Stat, error)
	errors  func(context.Context, store.ErrorFilter) ([]store.ErrorGroup, error)
	workers func(context.Context) ([]store.Worker, error)
	edit    func(context.Context, store.Edit) ([]store.Edited, error)
	records func(context.Context, store.RecordFilter) ([]store.Record, error)
	put     func(context.Context, store.PutRecord) (int64, []store.Enqueued, error)
	update  func(context.Context, int64, []store.PutRecord) ([]store.Updated, error)
	grant   func(context.Context, int64, []store.ID) (int, error)
	due     func(context.Context, store.Retention, string, int) (store.Due, error)
	release func(context.Context, []byte) ([]store.ID, error)
	follow  func(context.Context, bool) (string, error)
	forget  func(context.Context, string) error
}

// either returns the fault if there is one, and ends a clause that hangs.
func either[F any](m *mutant, fault, sound F, isSet bool) F {
	if m.over.Load() || time.Now().After(m.ends) {
		runtime.Goexit()
	}
	if isSet {
		return fault
	}
	return sound
}

func (m *mutant) Enqueue(ctx context.Context, tasks []store.NewTask) ([]store.Enqueued, error) {
	return either(m, m.enqueue, m.Store.Enqueue, m.enqueue != nil)(ctx, tasks)
}

func (m *mutant) Claim(ctx context.Context, r store.ClaimRequest) ([]store.Task, error) {
	return either(m, m.claim, m.Store.Claim, m.claim != nil)(ctx, r)
}

func (m *mutant) Extend(ctx context.Context, b store.Beat) ([]store.Stop, error) {
	return either(m, m.extend, m.Store.Extend, m.extend != nil)(ctx, b)
}

func (m *mutant) Finish(ctx context.Context, outcomes []store.Outcome) ([]store.ID, error) {
	return either(m, m.finish, m.Store.Finish, m.finish != nil)(ctx, outcomes)
}

func (m *mutant) Lead(ctx context.Context, c store.Candidate) (store.Leadership, error) {
	return either(m, m.lead, m.Store.Lead, m.lead != nil)(ctx, c)
}

func (m *mutant) Admit(ctx context.Context, term int64, limit int) (store.Admitted, error) {
	return either(m, m.admit, m.Store.Admit, m.admit != nil)(ctx, term, limit)
}

func (m *mutant) Rescue(ctx context.Context, term int64, limit int) ([]store.Task, error) {
	return either(m, m.rescue, m.Store.Rescue, m.rescue != nil)(ctx, term, limit)
}

func (m *mutant) Prune(ctx context.Context, term int64, keep store.Retention, limit int) (int, error) {
	return either(m, m.prune, m.Store.Prune, m.prune != nil)(ctx, term, keep, limit)
}

func (m *mutant) List(ctx context.Context, f store.Filter) ([]store.Task, error) {
	return either(m, m.list, m.Store.List, m.list != nil)(ctx, f)
}

func (m *mutant) Count(ctx context.Context) ([]store.Count, error) {
	return either(m, m.count, m.Store.Count, m.count != nil)(ctx)
}

func (m *mutant) Stats(ctx context.Context, f store.StatsFilter) ([]store.Stat, error) {
	return either(m, m.stats, m.Store.Stats, m.stats != nil)(ctx, f)
}

func (m *mutant) Errors(ctx context.Context, f store.ErrorFilter) ([]store.ErrorGroup, error) {
	return either(m, m.errors, m.Store.Errors, m.errors != nil)(ctx, f)
}

func (m *mutant) Workers(ctx context.Context) ([]store.Worker, error) {
	return either(m, m.workers, m.Store.Workers, m.workers != nil)(ctx)
}

func (m *mutant) Edit(ctx context.Context, e store.Edit) ([]store.Edited, error) {
	return either(m, m.edit, m.Store.Edit, m.edit != nil)(ctx, e)
}

func (m *mutant) Records(ctx context.Context, f store.RecordFilter) ([]store.Record, error) {
	return either(m, m.records, m.Store.Records, m.records != nil)(ctx, f)
}

func (m *mutant) PutRecord(ctx context.Context, p store.PutRecord) (int64, []store.Enqueued, error) {
	return either(m, m.put, m.Store.PutRecord, m.put != nil)(ctx, p)
}

func (m *mutant) UpdateRecords(ctx context.Context, term int64, puts []store.PutRecord) ([]store.Updated, error) {
	return either(m, m.update, m.Store.UpdateRecords, m.update != nil)(ctx, term, puts)
}

func (m *mutant) Grant(ctx context.Context, term int64, ids []store.ID) (int, error) {
	return either(m, m.grant, m.Store.Grant, m.grant != nil)(ctx, term, ids)
}

func (m *mutant) Due(ctx context.Context, keep store.Retention, from string, limit int) (store.Due, error) {
	return either(m, m.due, m.Store.Due, m.due != nil)(ctx, keep, from, limit)
}

func (m *mutant) Release(ctx context.Context, receipt []byte) ([]store.ID, error) {
	return either(m, m.release, m.Store.Release, m.release != nil)(ctx, receipt)
}

func (m *mutant) Follow(ctx context.Context, on bool) (string, error) {
	return either(m, m.follow, m.Store.Follow, m.follow != nil)(ctx, on)
}

func (m *mutant) Forget(ctx context.Context, cursor string) error {
	return either(m, m.forget, m.Store.Forget, m.forget != nil)(ctx, cursor)
}
