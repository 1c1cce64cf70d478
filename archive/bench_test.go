package archive

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/storetest"
)

// BenchmarkFile writes tasks of 300 bytes. A third of each task is incompressible.
func BenchmarkFile(b *testing.B) {
	page := make([]store.Task, 10_000)
	worker := storetest.NewID()
	for i := range page {
		noise := make([]byte, 50)
		for j := range noise {
			noise[j] = byte(rand.Uint32())
		}
		at := time.Unix(1_800_000_000, int64(i)*1e6).UTC()
		page[i] = store.Task{ID: storetest.NewID(), Kind: "mail", Queue: "q", State: store.Completed, Attempt: 1,
			EnqueuedAt: at, RunAt: at, ClaimedAt: at, FinishedAt: at,
			Args: fmt.Appendf(nil,
				`{"to": "user-%d@example.com", "subject": "Your order has been shipped", "template": "order-shipped-v2", `+
					`"locale": "en-GB", "order": %d, "items": 3, "note": "thank you for your order, it is on its way", `+
					`"token": %q}`, i, i*7, hex.EncodeToString(noise)),
			Detail: &store.Detail{Attempts: []store.Attempt{{Number: 1, Worker: worker, StartedAt: at, EndedAt: at,
				Outcome: store.Completed}}}}
	}
	f, err := newFile(b.TempDir(), Partition{"2026-01-01", "q"})
	if err != nil {
		b.Fatal(err)
	}
	defer f.discard()
	n := 0
	for b.Loop() {
		if err := f.add(rowOf(&page[n%len(page)])); err != nil {
			b.Fatal(err)
		}
		n++
	}
	about, err := f.close()
	if err != nil {
		b.Fatal(err)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(len(page[0].Args)), "args-bytes/task")
	b.ReportMetric(float64(about.Bytes)/float64(about.Tasks), "file-bytes/task")
	b.ReportMetric(float64(m.HeapSys)/(1<<20), "heap-MiB")
}
