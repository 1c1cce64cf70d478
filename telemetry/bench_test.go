package telemetry_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/mysql"
	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
	"github.com/tuskqueue/tusk/store/postgres"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
	"github.com/tuskqueue/tusk/store/sqlite/sqlitefile"
	"github.com/tuskqueue/tusk/telemetry"
)

// BenchmarkScrape measures a scrape of a process that knows 1,000 queues. It may take at most 50 ms.
// A cold scrape reads the database, which happens once in ten seconds.
func BenchmarkScrape(b *testing.B) {
	for name, open := range map[string]func(b *testing.B) (store.Store, error){
		"sqlite": func(b *testing.B) (store.Store, error) {
			return sqlitefile.Open(b.Context(), filepath.Join(b.TempDir(), "tusk.db"))
		},
		"postgres": func(b *testing.B) (store.Store, error) { return postgres.Open(b.Context(), pgtest.DSN(b)) },
		"mysql":    func(b *testing.B) (store.Store, error) { return mysql.Open(b.Context(), mysqltest.Database(b)) },
	} {
		b.Run(name, func(b *testing.B) {
			s, err := open(b)
			if err != nil {
				b.Fatal(err)
			}
			if c, ok := s.(io.Closer); ok {
				defer c.Close()
			}
			if m, ok := store.As[store.Migrator](s); ok {
				if _, err := m.Migrate(b.Context(), -1); err != nil {
					b.Fatal(err)
				}
			}
			tell := telemetry.New()
			client, err := tusk.NewClient(tell.Wrap(s), &tusk.ClientConfig{Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				b.Fatal(err)
			}
			tell.Watch(client)
			tasks := make([]tusk.NewTask, 1000)
			for i := range tasks {
				tasks[i] = tusk.NewTask{Args: tusk.RawArgs{Name: "k"}, Options: &tusk.Options{Queue: fmt.Sprintf("q%04d", i)}}
			}
			for range 10 {
				if _, err := client.EnqueueMany(b.Context(), tasks); err != nil {
					b.Fatal(err)
				}
			}
			for age, every := range map[string]time.Duration{"cold": time.Nanosecond, "warm": time.Hour} {
				b.Run(age, func(b *testing.B) {
					tell.ReadEvery(every)
					handler := tell.Handler()
					for b.Loop() {
						handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/metrics", nil))
					}
					b.ReportMetric(float64(b.Elapsed().Microseconds())/1000/float64(b.N), "ms/scrape")
				})
			}
		})
	}
}
