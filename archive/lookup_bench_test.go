package archive

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"gocloud.dev/blob/fileblob"

	"github.com/tuskqueue/tusk/store"
)

// BenchmarkLookUp looks for tasks by their ids in an archive of a thousand files. Each file has one
// day and one queue. In each, a hundred tasks were enqueued days before the others. It stands for
// 100 million tasks in files of 100,000. There are fewer tasks, TUSK_BENCH_TASKS per file, but one
// file in a hundred has its full size, and half of the look-ups go to those. Cold is the first
// look-up of a process. The benchmark fails if a look-up takes more than three requests, or if one
// in a hundred takes 100 ms.
//
//	go test -run - -bench LookUp -benchtime 2000x ./archive
func BenchmarkLookUp(b *testing.B) {
	perFile := 500
	if text := os.Getenv("TUSK_BENCH_TASKS"); text != "" {
		_, _ = fmt.Sscan(text, &perFile)
	}
	bucket, err := fileblob.OpenBucket(b.TempDir(), folder)
	if err != nil {
		b.Fatal(err)
	}
	defer bucket.Close()
	var ids []store.ID
	for file := range 1000 {
		n, every := perFile, perFile/10
		if file%100 == 0 {
			n, every = 100_000, 100
		}
		tasks := make([]store.Task, n)
		for i := range tasks {
			tasks[i] = oldTask(24*file, func(t *store.Task) {
				t.FinishedAt = t.FinishedAt.Add(time.Duration(rand.Int64N(int64(24 * time.Hour))))
				t.EnqueuedAt = t.FinishedAt.Add(-time.Duration(rand.Int64N(int64(time.Minute))))
				if i%(n/100) == 0 {
					t.EnqueuedAt = t.FinishedAt.Add(-time.Duration(rand.Int64N(int64(5 * 24 * time.Hour))))
				}
				t.ID = idAt(t.EnqueuedAt)
				t.Args = fmt.Appendf(nil, `{"to": "user-%d@example.com", "template": "order-shipped-v2", "order": %d}`, i,
					rand.Int64())
			})
			if i%every < 2 {
				ids = append(ids, tasks[i].ID)
			}
		}
		// Engines hand them over in this order.
		slices.SortFunc(tasks, func(a, b store.Task) int { return a.FinishedAt.Compare(b.FinishedAt) })
		shelveOne(b, bucket, tasks, file == 999)
	}
	for name, cold := range map[string]bool{"warm": false, "cold": true} {
		b.Run(name, func(b *testing.B) {
			a := New(bucket, "")
			var took []time.Duration
			var requests, most int64
			for b.Loop() {
				if cold {
					a = New(bucket, "")
				}
				id, before, began := ids[rand.IntN(len(ids))], a.Requests(), time.Now()
				if _, err := a.Find(b.Context(), id); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(began))
				n := a.Requests() - before
				requests, most = requests+n, max(most, n)
			}
			slices.Sort(took)
			b.ReportMetric(float64(requests)/float64(len(took)), "requests/op")
			b.ReportMetric(float64(most), "most-requests")
			p99 := took[len(took)*99/100]
			b.ReportMetric(float64(p99.Microseconds())/1000, "p99-ms")
			if most > 3 {
				b.Errorf("a look-up took %d requests, want 3 at most", most)
			}
			if p99 > 100*time.Millisecond {
				b.Errorf("one look-up in a hundred took %v, want 100 ms at most", p99)
			}
		})
	}
}
