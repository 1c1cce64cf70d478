package telemetry_test

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"testing"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store/memory"
	"github.com/tuskqueue/tusk/telemetry"
)

// BenchmarkScrape is a scrape of a process that knows 1,000 queues: 50 ms is the most that
// it may take.
func BenchmarkScrape(b *testing.B) {
	tell := telemetry.New()
	client, err := tusk.NewClient(tell.Wrap(memory.New()), &tusk.ClientConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	tell.Watch(client)
	tasks := make([]tusk.NewTask, 1000)
	for i := range tasks {
		tasks[i] = tusk.NewTask{Args: tusk.RawArgs{Name: "k"}, Options: &tusk.Options{Queue: fmt.Sprintf("q%04d", i)}}
	}
	if _, err := client.EnqueueMany(b.Context(), tasks); err != nil {
		b.Fatal(err)
	}
	handler := tell.Handler()
	for b.Loop() {
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/metrics", nil))
	}
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/scrape")
}
