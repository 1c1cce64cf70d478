package tusk_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store/memory"
)

// BenchmarkLibrary measures the cost of the library itself per task, from enqueue to
// finish. The store in memory costs next to nothing.
func BenchmarkLibrary(b *testing.B) {
	client := clientOf(b, memory.New())
	mux := tusk.NewMux()
	var ran atomic.Int64
	done := make(chan struct{})
	tusk.HandleFunc(mux, func(context.Context, count) error {
		if ran.Add(1) == int64(b.N) {
			close(done)
		}
		return nil
	})
	worker, err := tusk.NewWorker(client, mux, nil)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error)
	go func() { stopped <- worker.Run(ctx) }()
	const batch = 500
	tasks := make([]tusk.NewTask, batch)
	b.ReportAllocs()
	b.ResetTimer()
	for left := b.N; left > 0; left -= batch {
		part := tasks[:min(left, batch)]
		for i := range part {
			part[i].Args = count{i}
		}
		if _, err := client.EnqueueMany(ctx, part); err != nil {
			b.Fatal(err)
		}
	}
	<-done
	b.StopTimer()
	cancel()
	if err := <-stopped; err != nil {
		b.Fatal(err)
	}
}
