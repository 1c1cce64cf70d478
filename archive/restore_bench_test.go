package archive

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"gocloud.dev/blob/fileblob"

	"github.com/tuskqueue/tusk/internal/cbfake"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/couchbase"
	"github.com/tuskqueue/tusk/store/postgres"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
	"github.com/tuskqueue/tusk/store/sqlite/sqlitefile"
)

// BenchmarkRestore puts 200,000 tasks of 300 bytes back into a new database from a folder, until
// the folder has none of them.
//
//	go test -run - -bench Restore -benchtime 1x -count 3 ./archive
func BenchmarkRestore(b *testing.B) {
	for name, open := range map[string]func(b *testing.B) store.Store{"sqlite": sqliteFile, "postgres": postgresServer,
		"couchbase": couchbaseFake} {
		b.Run(name, func(b *testing.B) {
			const tasks = 200_000
			var took time.Duration
			for range b.N {
				took += restoreAll(b, open(b), tasks)
			}
			b.ReportMetric(float64(tasks*b.N)/took.Seconds(), "tasks/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// restoreAll returns how long it takes to put all tasks back.
func restoreAll(b *testing.B, s store.Store, tasks int) time.Duration {
	m, ok := store.As[store.Migrator](s)
	if !ok {
		b.Fatal("the engine has no schema")
	}
	if _, err := m.Migrate(b.Context(), -1); err != nil {
		b.Fatal(err)
	}
	bucket, err := fileblob.OpenBucket(b.TempDir(), folder)
	if err != nil {
		b.Fatal(err)
	}
	defer bucket.Close()
	all := make([]store.Task, tasks)
	for i := range all {
		all[i] = oldTask(i/10_000, func(t *store.Task) {
			t.Args = fmt.Appendf(nil,
				`{"order": %d, "to": "user-%07d@example.com", "total": %d.17, "template": "order-shipped-v2", "locale": "en-GB", `+
					`"items": [{"sku": "SKU-%05d", "n": 1}, {"sku": "SKU-%05d", "n": 3}], `+
					`"note": "thank you for your order, it has left our house and is on its way to you", "phone": "+49 30 %08d"}`,
				7_000_000_000+i, i*7919%10_000_000, i%1000, i*31%100_000, i*17%100_000, i*104_729%100_000_000)
		})
	}
	b.Logf("the first args have %d bytes", len(all[0].Args))
	shelve(b, bucket, all)
	r := keeper(b, s, bucket)
	request, err := RequestRestore(b.Context(), s, Restore{ID: r.o.NewID()})
	if err != nil {
		b.Fatal(err)
	}
	begun := time.Now()
	request, err = r.Restore(b.Context(), request.ID, nil)
	took := time.Since(begun)
	if err != nil || request.State != RestoreDone || request.Restored != int64(tasks) {
		b.Fatalf("%+v: %v", request, err)
	}
	return took
}

func sqliteFile(b *testing.B) store.Store {
	s, err := sqlitefile.Open(b.Context(), filepath.Join(b.TempDir(), "tusk.db"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}

// couchbaseFake says nothing about a cluster. It shows the cost in the process that restores.
func couchbaseFake(b *testing.B) store.Store {
	fake, err := cbfake.Start(1)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(fake.Close)
	s, err := couchbase.Open(b.Context(), fake.URL()+"?sasl=plain")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}

func postgresServer(b *testing.B) store.Store {
	server, err := pgtest.Start()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(server.Stop)
	pool, err := pgxpool.New(b.Context(), server.DSN)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	s, err := postgres.New(b.Context(), pool, postgres.Options{})
	if err != nil {
		b.Fatal(err)
	}
	return s
}
