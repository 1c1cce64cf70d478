package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Bench measures one caller of an engine, in batches of three sizes: enqueueing tasks, claiming and finishing them,
// and both. One operation is one batch; tasks/s is reported too.
func Bench(b *testing.B, e Engine) {
	for _, size := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint("enqueue/", size), func(b *testing.B) {
			l := newLine(b, e, size)
			for b.Loop() {
				l.enqueue()
			}
			l.report()
		})
		b.Run(fmt.Sprint("claim and finish/", size), func(b *testing.B) {
			l := newLine(b, e, size)
			for left := 0; b.Loop(); left-- {
				if left == 0 {
					b.StopTimer()
					for left = range 1 + 2000/size {
						l.enqueue()
					}
					left++
					b.StartTimer()
				}
				l.run()
			}
			l.report()
		})
		b.Run(fmt.Sprint("all/", size), func(b *testing.B) {
			l := newLine(b, e, size)
			for b.Loop() {
				l.enqueue()
				l.run()
			}
			l.report()
		})
	}
}

// BenchTicks measures firing schedules that are due together. One operation moves the cursors of 500 schedules, each
// of which enqueues a task with a key.
func BenchTicks(b *testing.B, e Engine) {
	const size, all = 500, 10_000
	ctx := context.Background()
	l := newLine(b, e, size)
	leader, err := l.store.Lead(ctx, store.Candidate{ID: NewID(), TTL: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	puts := make([]store.PutRecord, all)
	for i := range puts {
		r := store.Record{Kind: "schedule", Name: fmt.Sprint("s", i),
			Body: fmt.Appendf(nil, `{"spec":"@every 1m","text":"%0200d"}`, 0)}
		if r.Version, _, err = l.store.PutRecord(ctx, store.PutRecord{Record: r}); err != nil {
			b.Fatal(err)
		}
		puts[i].Record = r
	}
	at := 0
	for b.Loop() {
		set := puts[at : at+size]
		for i := range set {
			set[i].Tasks = []store.NewTask{{ID: NewID(), Kind: "k", Queue: "q", Args: l.args,
				Key: "schedule:" + set[i].Record.Name}}
		}
		updated, err := l.store.UpdateRecords(ctx, leader.Term, set)
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		for i := range set {
			if set[i].Record.Version = updated[i].Version; updated[i].Version == 0 {
				b.Fatal("a record was not written")
			}
		}
		l.run()
		at = (at + size) % all
		b.StartTimer()
	}
	b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "schedules/s")
}

// line is a producer and a worker of one queue, which run alternately.
type line struct {
	*testing.B
	store  store.Store
	size   int
	worker store.ID
	args   []byte
}

func newLine(b *testing.B, e Engine, size int) *line {
	l := &line{B: b, store: e.New(b)(), size: size, worker: NewID(), args: fmt.Appendf(nil, `{"text":"%069d"}`, 0)}
	beat := store.Beat{Worker: store.Worker{ID: l.worker, Host: "host", Queues: []string{"q"}, Concurrency: size},
		TTL: time.Hour}
	if _, err := l.store.Extend(context.Background(), beat); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	return l
}

func (l *line) enqueue() {
	tasks := make([]store.NewTask, l.size)
	for i := range tasks {
		tasks[i] = store.NewTask{ID: NewID(), Kind: "k", Queue: "q", Args: l.args}
	}
	if _, err := l.store.Enqueue(context.Background(), tasks); err != nil {
		l.Fatal(err)
	}
}

// run claims a batch of tasks and completes them.
func (l *line) run() {
	ctx := context.Background()
	tasks, err := l.store.Claim(ctx, store.ClaimRequest{Worker: l.worker, Queues: []string{"q"}, Limit: l.size,
		Token: store.NewToken()})
	if err != nil || len(tasks) != l.size {
		l.Fatalf("claimed %d of %d, %v", len(tasks), l.size, err)
	}
	outcomes := make([]store.Outcome, len(tasks))
	for i := range tasks {
		outcomes[i] = to(store.Completed, &tasks[i])
	}
	if lost, err := l.store.Finish(ctx, outcomes); err != nil || len(lost) > 0 {
		l.Fatalf("lost %d of %d, %v", len(lost), l.size, err)
	}
}

func (l *line) report() {
	l.ReportMetric(float64(l.N*l.size)/l.Elapsed().Seconds(), "tasks/s")
}
