package peers

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/bench/harness"
	"github.com/tuskqueue/tusk/bench/servers"
	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(mysqltest.Around{Tests: m}) }

// TestEveryGoAdapterRunsEveryTask takes each adapter through a tiny plan. It skips adapters whose
// server or SQL is missing.
func TestEveryGoAdapterRunsEveryTask(t *testing.T) {
	for _, c := range All() {
		if c.New == nil || c.Server == RedisEvery || c.Server == Couchbase {
			continue
		}
		t.Run(c.Key(), func(t *testing.T) {
			p := harness.Plan{Peer: c.Name, Variant: c.Variant, Order: harness.Together, Tasks: 60, Batch: 20, Workers: 8,
				Producers: 2, Install: os.Getenv(c.SQL)}
			if c.SQL != "" && p.Install == "" {
				t.Skipf("%s is not set", c.SQL)
			}
			if len(c.Cannot) == len(consuming) {
				p.Order = harness.ProduceOnly
			}
			p.Target = target(t, c)
			peer, err := Find(p)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			r, err := harness.Drive(ctx, peer, p, func(string) error { return nil })
			if err != nil && c.Name == "PgQ" && strings.Contains(err.Error(), "is not available") {
				t.Skip(err)
			}
			if err != nil || r.Stored != p.Tasks || r.Tasks != p.Tasks {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

func target(t *testing.T, c Contender) string {
	t.Helper()
	switch c.Server {
	case Postgres:
		return pgtest.DSN(t)
	case MySQL:
		return mysqltest.Database(t)
	case SQLite:
		return filepath.Join(t.TempDir(), "queue.db")
	}
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("no redis-server")
	}
	r, err := servers.StartRedis(t.Context(), "always")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	return r.Addr
}

func TestContendersAreToldApart(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range All() {
		if seen[c.Key()] {
			t.Errorf("there are two of %q", c.Key())
		}
		seen[c.Key()] = true
		if (c.New == nil) == (c.Script == "") {
			t.Errorf("%s is neither an adapter nor a program, or both", c.Key())
		}
	}
	Dir = "."
	for _, c := range All() {
		if c.Script != "" && c.Version() == "" {
			t.Errorf("the version of %s is not known", c.Key())
		}
	}
}
