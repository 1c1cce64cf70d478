package sqlite_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/sqlite"
)

// round is one round of a benchmark of what follows from an enqueue, an end or an edit.
type round struct {
	*testing.B
	*sqlite.Store
	worker store.ID
	term   int64
	tasks  []store.NewTask
}

func (r *round) must(_ any, err error) {
	if err != nil {
		r.Fatal(err)
	}
}

func (r *round) enqueue() { r.must(r.Enqueue(r.Context(), r.tasks)) }

func (r *round) claim() []store.Task { return claim(r, r.Store, r.worker, len(r.tasks)) }

func (r *round) end(tasks []store.Task, change func(int, *store.Outcome)) {
	outcomes := make([]store.Outcome, len(tasks))
	for i := range tasks {
		outcomes[i] = store.Outcome{Task: &tasks[i], State: store.Completed, Attempt: tasks[i].Attempt, Ran: time.Millisecond}
		if change != nil {
			change(i, &outcomes[i])
		}
	}
	lost, err := r.Finish(r.Context(), outcomes)
	r.must(nil, err)
	if len(lost) > 0 {
		r.Fatal(lost)
	}
}

func (r *round) edit(c store.Change) {
	ids := make([]store.ID, len(r.tasks))
	for i := range r.tasks {
		ids[i] = r.tasks[i].ID
	}
	r.must(r.Edit(r.Context(), store.Edit{IDs: ids, Change: c}))
}

// BenchmarkFollowing measures the processor time of tasks with consequences.
func BenchmarkFollowing(b *testing.B) {
	failed := func(_ int, o *store.Outcome) {
		o.State, o.Error, o.Fingerprint = store.Retryable, "no such host", "fp"
	}
	for name, run := range map[string]func(r *round){
		"plain": func(r *round) {
			r.enqueue()
			r.end(r.claim(), nil)
		},
		"key": func(r *round) {
			for i := range r.tasks {
				r.tasks[i].Key = fmt.Sprint(i)
			}
			r.enqueue()
			r.enqueue()
			r.end(r.claim(), nil)
		},
		"retry": func(r *round) {
			r.enqueue()
			r.end(r.claim(), failed)
			r.must(r.Admit(r.Context(), r.term, 1000))
			r.end(r.claim(), nil)
		},
		// Each half needs the task at its place in the other half.
		"layers": func(r *round) {
			half := len(r.tasks) / 2
			for i := half; i < len(r.tasks); i++ {
				r.tasks[i].Needs = []store.Need{{Task: r.tasks[i-half].ID}}
			}
			r.enqueue()
			r.end(r.claim(), nil)
			r.end(r.claim(), nil)
		},
		"fan": func(r *round) { // one task before all, and one after all
			last := len(r.tasks) - 1
			for i := 1; i < last; i++ {
				r.tasks[i].Needs = []store.Need{{Task: r.tasks[0].ID}}
				r.tasks[last].Needs = append(r.tasks[last].Needs, store.Need{Task: r.tasks[i].ID})
			}
			r.enqueue()
			for range 3 {
				r.end(r.claim(), nil)
			}
		},
		"edit": func(r *round) {
			r.enqueue()
			r.edit(store.Change{Op: store.Reprioritize, Priority: 1})
			r.edit(store.Change{Op: store.Cancel})
			r.edit(store.Change{Op: store.Delete})
		},
		"prune": func(r *round) {
			r.enqueue()
			r.end(r.claim(), nil)
			r.must(r.Prune(r.Context(), r.term, store.Retention{Completed: time.Nanosecond}, 1000))
		},
		"forget": func(r *round) {
			r.enqueue()
			r.end(r.claim(), func(_ int, o *store.Outcome) { o.Forget = true })
		},
	} {
		for _, size := range []int{2, 100} {
			if name == "fan" && size == 2 {
				continue
			}
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				r := &round{B: b, Store: migrated(b)}
				r.worker = register(b, r.Store)
				l, err := r.Lead(b.Context(), store.Candidate{ID: newID(), TTL: time.Hour})
				r.must(l, err)
				r.term = l.Term
				r.tasks = newTasks(1) // one that runs all the time keeps the lane
				r.enqueue()
				r.claim()
				began := processorTime(b, r.Store)
				n := 0
				for b.Loop() {
					r.tasks = newTasks(size)
					run(r)
					n += size
				}
				b.ReportMetric(float64((processorTime(b, r.Store)-began).Microseconds())/float64(n), "cpu-µs/task")
			})
		}
	}
}
