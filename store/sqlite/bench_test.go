package sqlite_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/sqlite"
	"github.com/tuskqueue/tusk/store/sqlite/sqlitefile"
)

func open(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	s, err := sqlitefile.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func migrated(t testing.TB) *sqlite.Store {
	t.Helper()
	s := open(t, filepath.Join(t.TempDir(), "tusk.db"))
	if _, err := s.Migrate(t.Context(), -1); err != nil {
		t.Fatal(err)
	}
	return s
}

func newID() store.ID { return store.ID(uuid.Must(uuid.NewV7())) }

func newTasks(n int) []store.NewTask {
	args := make([]byte, 80)
	for i := range args {
		args[i] = '1'
	}
	tasks := make([]store.NewTask, n)
	for i := range tasks {
		tasks[i] = store.NewTask{ID: newID(), Kind: "bench", Queue: "default", Args: args}
	}
	return tasks
}

func register(t testing.TB, s store.Store) store.ID {
	t.Helper()
	id := newID()
	if _, err := s.Extend(t.Context(), store.Beat{Worker: store.Worker{ID: id, Queues: []string{"default"}},
		TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	return id
}

func claim(t testing.TB, s store.Store, worker store.ID, limit int) []store.Task {
	t.Helper()
	tasks, err := s.Claim(t.Context(), store.ClaimRequest{Worker: worker, Queues: []string{"default"}, Limit: limit,
		Token: store.NewToken()})
	if err != nil {
		t.Fatal(err)
	}
	return tasks
}

func complete(t testing.TB, s store.Store, tasks []store.Task) {
	t.Helper()
	outcomes := make([]store.Outcome, len(tasks))
	for i := range tasks {
		outcomes[i] = store.Outcome{Task: &tasks[i], State: store.Completed, Attempt: tasks[i].Attempt, Ran: time.Millisecond}
	}
	if lost, err := s.Finish(context.Background(), outcomes); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
}

func BenchmarkLife(b *testing.B) {
	for _, batch := range []int{1, 10, 500} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			s := migrated(b)
			worker := register(b, s)
			var enqueue, claiming, finish time.Duration
			n := 0
			before, err := s.Measure(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			for ; n < b.N; n += batch {
				tasks := newTasks(batch)
				start := time.Now()
				if _, err := s.Enqueue(b.Context(), tasks); err != nil {
					b.Fatal(err)
				}
				enqueue += time.Since(start)
				start = time.Now()
				claimed := claim(b, s, worker, batch)
				claiming += time.Since(start)
				if len(claimed) != batch {
					b.Fatal(len(claimed))
				}
				start = time.Now()
				complete(b, s, claimed)
				finish += time.Since(start)
			}
			b.StopTimer()
			after, err := s.Measure(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			per := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(n) }
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "tasks/s")
			b.ReportMetric(per(after.ServerCPU-before.ServerCPU), "cpu-µs/task")
			b.ReportMetric(per(enqueue), "enqueue-µs/task")
			b.ReportMetric(per(claiming), "claim-µs/task")
			b.ReportMetric(per(finish), "finish-µs/task")
		})
	}
}

func BenchmarkEnqueueSinglyByHundred(b *testing.B) {
	s := migrated(b)
	b.SetParallelism(50) // goroutines for each of two processors
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := s.Enqueue(context.Background(), newTasks(1)); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
}

// BenchmarkTurns compares the life of tasks of 1,000 tenants with that of tasks without turns: batches of 100, a round
// of the leader for every eight batches, and ten tasks of each tenant that wait all the time.
func BenchmarkTurns(b *testing.B) {
	const batch, round, tenants, backlog = 100, 8, 1000, 10_000
	for _, turns := range []bool{false, true} {
		b.Run(fmt.Sprintf("turns=%v", turns), func(b *testing.B) {
			s := migrated(b)
			worker := register(b, s)
			lead, err := s.Lead(b.Context(), store.Candidate{ID: newID(), TTL: time.Hour})
			if err != nil {
				b.Fatal(err)
			}
			var took [5]time.Duration
			step := func(i int, do func()) {
				began := processorTime(b, s)
				do()
				took[i] += processorTime(b, s) - began
			}
			n := 0
			enqueue := func() {
				tasks := newTasks(batch)
				for i := range tasks {
					tasks[i].Tenant, tasks[i].Turn = fmt.Sprint("t", (n+i)%tenants), turns
				}
				n += batch
				if _, err := s.Enqueue(b.Context(), tasks); err != nil {
					b.Fatal(err)
				}
			}
			for n < backlog {
				enqueue()
			}
			for n = 0; b.Loop(); {
				for range round {
					step(0, enqueue)
				}
				if turns {
					var next []store.ID
					step(1, func() { next = waiting(b, s, lead.Term, round*batch) })
					step(2, func() { _, err = s.Grant(b.Context(), lead.Term, next) })
				}
				for range round {
					var claimed []store.Task
					step(3, func() { claimed = claim(b, s, worker, batch) })
					step(4, func() { complete(b, s, claimed) })
				}
			}
			for i, name := range []string{"enqueue", "turns", "grant", "claim", "finish"} {
				b.ReportMetric(float64(took[i].Microseconds())/float64(n), name+"-cpu-µs/task")
			}
		})
	}
}

// waiting returns the first waiting task of each of the first groups.
func waiting(b *testing.B, s *sqlite.Store, term int64, most int) (ids []store.ID) {
	groups, err := s.Turns(b.Context(), term, 5000, 4)
	if err != nil {
		b.Fatal(err)
	}
	for _, g := range groups[:most] {
		ids = append(ids, g.Waiting[0])
	}
	return ids
}

func processorTime(b *testing.B, s *sqlite.Store) time.Duration {
	m, err := s.Measure(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return m.ServerCPU
}
