package postgres_test

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
	"github.com/tuskqueue/tusk/store/storetest"
)

// BenchmarkProduceAndConsume moves tasks through the whole round: producers enqueue in batches, while workers claim
// and finish in batches. An op is a task.
func BenchmarkProduceAndConsume(b *testing.B) {
	for _, c := range []struct {
		name        string
		batch       int
		together    bool
		transaction bool
	}{
		{"batch=500/together", 500, true, false},
		{"batch=500/together/transaction held", 500, true, true},
		{"batch=500/one after the other", 500, false, false},
		{"batch=1/one after the other", 1, false, false},
	} {
		b.Run(c.name, func(b *testing.B) {
			s, pool := fresh(b)
			if c.transaction {
				tx, err := pool.Begin(context.Background())
				if err != nil {
					b.Fatal(err)
				}
				defer tx.Rollback(context.Background())
				if _, err := tx.Exec(context.Background(), "select pg_current_xact_id()"); err != nil {
					b.Fatal(err)
				}
			}
			round(b, s, c.batch, c.together)
		})
	}
}

func round(b *testing.B, s *postgres.Store, batch int, together bool) {
	ctx := context.Background()
	w := startWorker(b, s)
	args := make([]byte, 80)
	for i := range args {
		args[i] = '1'
	}
	produce := func(n int) {
		for n > 0 {
			tasks := newTasks(min(n, batch), "q")
			for i := range tasks {
				tasks[i].Args = args
			}
			if _, err := s.Enqueue(ctx, tasks); err != nil {
				b.Error(err)
				return
			}
			n -= len(tasks)
		}
	}
	var done atomic.Int64
	consume := func(want int64) {
		for done.Load() < want && !b.Failed() {
			tasks, err := s.Claim(ctx, store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: batch,
				Token: store.NewToken()})
			if err == nil && len(tasks) > 0 {
				_, err = s.Finish(ctx, completed(tasks))
			}
			if err != nil {
				b.Error(err)
				return
			}
			done.Add(int64(len(tasks)))
		}
	}
	produce(batch) // makes plans and fills caches
	consume(int64(batch))
	before, err := s.Measure(ctx)
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	started := time.Now()
	const hands = 2
	phase := func(do func()) {
		var g sync.WaitGroup
		for range hands {
			g.Go(do)
		}
		g.Wait()
	}
	target := int64(batch) + int64(b.N/hands*hands)
	if together {
		var g sync.WaitGroup
		g.Go(func() { phase(func() { produce(b.N / hands) }) })
		g.Go(func() { phase(func() { consume(target) }) })
		g.Wait()
	} else {
		phase(func() { produce(b.N / hands) })
		produced, _ := s.Measure(ctx)
		b.ReportMetric(float64((produced.ServerCPU-before.ServerCPU).Microseconds())/float64(b.N), "enqueue-cpu-µs/op")
		b.ReportMetric(float64(b.N)/time.Since(started).Seconds(), "enqueued/s")
		half := time.Now()
		phase(func() { consume(target) })
		b.ReportMetric(float64(b.N)/time.Since(half).Seconds(), "consumed/s")
		after, _ := s.Measure(ctx)
		b.ReportMetric(float64((after.ServerCPU-produced.ServerCPU).Microseconds())/float64(b.N), "consume-cpu-µs/op")
	}
	b.StopTimer()
	after, err := s.Measure(ctx)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/time.Since(started).Seconds(), "tasks/s")
	b.ReportMetric(float64((after.ServerCPU-before.ServerCPU).Microseconds())/float64(b.N), "server-cpu-µs/op")
	b.ReportMetric(float64(after.WALBytes-before.WALBytes)/float64(b.N), "wal-B/op")
	if os.Getenv("TUSK_TEST_VERBOSE") != "" {
		b.Log(after)
	}
}

func BenchmarkTicks(b *testing.B) { storetest.BenchTicks(b, engine(beginPgx)) }
