//go:build unix

package storm

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tuskqueue/tusk/internal/cbfake"
	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

// ground is what a storm runs on: a database with its own server, network, disk and clock.
type ground struct {
	name   string // sqlite, postgres, pgbouncer, mysql, couchbase, ledgers
	engine string
	dsn    string // straight to the server
	// via is the DSN given to the processes, apart from the door that each of them has.
	via     string
	file    string // the SQLite file
	version string
	proxy   *proxy  // nil for SQLite
	admin   *sql.DB // nil for Couchbase and ledgers
	pg      *pgtest.Server
	my      *mysqltest.Server
	cb      *couchServer
	cluster *cluster
	bouncer *bouncer
	disk    *disk  // nil if its power cannot be cut
	clock   *clock // the server's clock; nil means the machine's
}

// newGround creates the ground for a storm. Only a long storm has a disk and a clock that can fail. The log says
// which faults this machine cannot produce.
func newGround(t *testing.T, name, dir string, long bool) *ground {
	t.Helper()
	g := &ground{name: name, engine: name}
	home := dir
	if long && mayStrike("F6") && name != "couchbase" && name != "ledgers" {
		var err error
		if g.disk, err = newDisk(t); err != nil {
			t.Logf("F6 cannot strike: %v", err)
			g.disk = nil
		} else {
			home = g.disk.dir
		}
	}
	if long && mayStrike("F16") && name != "sqlite" && name != "couchbase" && name != "ledgers" {
		g.makeClock(t)
	}
	if name == "sqlite" {
		g.file = filepath.Join(home, "tusk.db")
		g.dsn = "sqlite:" + g.file
	} else if name == "couchbase" {
		g.cb = startCouchbase(t, dir)
		g.dsn, g.version = g.cb.dsn(nil), "a fake of Couchbase "+cbfake.Version
	} else if name == "ledgers" {
		g.cluster = startCluster(t)
		g.dsn, g.version = g.cluster.dsn(), fmt.Sprintf("%d ledgers on %d PostgreSQL servers", ledgerCount, ledgerServers)
	} else if err := with(g.environment(), func() error { return g.startServer(t) }); err != nil {
		t.Fatal(err)
	}
	g.via = g.dsn
	if name == "pgbouncer" {
		g.bouncer = newBouncer(t, g.dsn, dir)
		g.via = withHost(t, g.dsn, g.bouncer.addr(), "default_query_exec_mode=cache_describe")
	}
	if err := prepare(t.Context(), g.engine, g.via); err != nil {
		t.Fatal(err)
	}
	if g.disk != nil {
		if err := g.disk.settle(); err != nil {
			t.Fatal(err)
		}
	}
	if g.cb != nil {
		g.proxy = newProxy(g.cb.ports()...)
		t.Cleanup(func() { g.proxy.cut(every) })
		return g
	}
	if g.cluster != nil {
		g.proxy = newProxy(g.cluster.hosts(t)...)
		t.Cleanup(func() { g.proxy.cut(every) })
		return g
	}
	var err error
	if g.admin, err = engines[g.engine].pool(g.dsn); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.admin.Close() })
	g.readVersion(t)
	if g.engine == "sqlite" {
		return g
	}
	g.proxy = newProxy(hostOf(t, g.via))
	t.Cleanup(func() { g.proxy.cut(every) })
	return g
}

func (g *ground) makeClock(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp("", "tusk-clock-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // the server runs as another user
		t.Fatal(err)
	}
	if g.clock, err = newClock(dir); err != nil {
		t.Logf("F16 cannot strike: %v", err)
		g.clock = nil
		return
	}
	t.Cleanup(forgetClocks)
}

// environment returns the environment variables for the server.
func (g *ground) environment() map[string]string {
	all := map[string]string{}
	if g.disk != nil {
		all["TMPDIR"] = g.disk.dir
	}
	if g.clock != nil {
		maps.Copy(all, g.clock.environment())
	}
	return all
}

func (g *ground) startServer(t *testing.T) error {
	if g.name == "mysql" {
		g.my = mysqltest.Start(t)
		g.dsn = g.my.Database(t)
		return nil
	}
	if g.name != "postgres" && g.name != "pgbouncer" {
		return fmt.Errorf("no ground of the name %q: want sqlite, postgres, pgbouncer, mysql, couchbase or ledgers", g.name)
	}
	g.engine = "postgres"
	server, err := pgtest.Start("max_connections=150", "deadlock_timeout=200ms")
	if err != nil {
		missingServer(t, "PostgreSQL", err)
	}
	t.Cleanup(server.Stop)
	g.pg, g.dsn = server, server.Database(t)
	return nil
}

// open makes a door to the server for one process.
func (g *ground) open(p *part) (*door, error) {
	if g.proxy == nil {
		return nil, nil
	}
	d, err := g.proxy.open()
	if err != nil {
		return nil, err
	}
	if g.cb != nil {
		p.DSN = g.cb.dsn(d)
		return d, nil
	}
	if g.cluster != nil {
		p.DSN, err = g.cluster.through(d, p.Name)
		return d, err
	}
	u, err := url.Parse(g.via)
	if err != nil {
		return nil, err
	}
	u.Host = d.addr()
	p.DSN, err = named(u.String(), p.Name)
	return d, err
}

// Names of sessions: those of workers, and those of users' transactions.
const (
	nameWorker = "worker"
	nameUser   = "user"
)

// named returns a DSN that gives its sessions a name, if the server shows names.
func named(dsn, name string) (string, error) {
	if !strings.HasPrefix(dsn, "postgres:") {
		return dsn, nil
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return "", err
	}
	q := u.Query()
	q.Set("application_name", name)
	u.RawQuery = q.Encode()
	return u.String(), nil
}

func (g *ground) readVersion(t *testing.T) {
	t.Helper()
	ask := map[string]string{"sqlite": "select 'SQLite ' || sqlite_version()",
		"postgres": "select 'PostgreSQL ' || current_setting('server_version')",
		"mysql":    "select version()"}[g.engine]
	if err := g.admin.QueryRowContext(t.Context(), ask).Scan(&g.version); err != nil {
		t.Fatal(err)
	}
	if g.name == "pgbouncer" {
		g.version += " behind pgbouncer"
	}
}

// missingServer skips a test because a server is missing, or fails it if all tests have to run.
func missingServer(t *testing.T, what string, err error) {
	t.Helper()
	if os.Getenv("CI") == "true" || os.Getenv("TUSK_TEST_ALL") == "1" {
		t.Fatalf("no %s: %v", what, err)
	}
	t.Skipf("SKIPPED, not tested: no %s: %v", what, err)
}

func hostOf(t *testing.T, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

func withHost(t *testing.T, dsn, host string, parameters ...string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = host
	q := u.Query()
	for _, p := range parameters {
		name, value, _ := strings.Cut(p, "=")
		q.Set(name, value)
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// killServer kills the database server, calls meanwhile, and restarts the server with its data.
func (g *ground) killServer(meanwhile func() error) error {
	if g.cluster != nil {
		return g.cluster.killAll(meanwhile)
	}
	if g.cb != nil {
		g.cb.kill()
	} else if g.my != nil {
		g.my.Kill()
	} else if err := g.pg.Kill(); err != nil {
		return err
	}
	if err := meanwhile(); err != nil {
		return err
	}
	return with(g.environment(), func() error {
		if g.cb != nil {
			return g.cb.run()
		}
		if g.my != nil {
			return g.my.Run()
		}
		return g.pg.Run()
	})
}

// exec runs one of the storm's own statements, straight on the server.
func (g *ground) exec(ctx context.Context, statement string, args ...any) error {
	_, err := g.admin.ExecContext(ctx, statement, args...)
	return err
}

// ids returns the numbers that a query finds.
func (g *ground) ids(ctx context.Context, query string, args ...any) (ids []int64, err error) {
	rows, err := g.admin.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// sessions returns the connections of the storm's processes to the server.
func (g *ground) sessions(ctx context.Context) ([]int64, error) {
	if g.my != nil {
		return g.ids(ctx, "select id from information_schema.processlist where db = database() and id <> connection_id()")
	}
	return g.ids(ctx,
		"select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and backend_type "+
			"= 'client backend'")
}

// activity returns what the server reports to be doing.
func (g *ground) activity(ctx context.Context) string {
	ask := map[string]string{
		"postgres": `
			select format('%s %s for %s, waits for %s of %s: %s', pid, state, clock_timestamp() - xact_start, wait_event,
				pg_blocking_pids(pid), left(query, 200))
			from pg_stat_activity
			where datname = current_database() and pid <> pg_backend_pid() and state <> 'idle'`,
		"mysql": "select concat_ws(' ', id, state, time, left(info, 200)) from information_schema.processlist where db = " +
			"database() and command <> 'Sleep'",
	}[g.engine]
	if ask == "" {
		return ""
	}
	rows, err := g.admin.QueryContext(ctx, ask)
	if err != nil {
		return err.Error()
	}
	defer rows.Close()
	var text strings.Builder
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			return err.Error()
		}
		text.WriteString("\n" + line)
	}
	return text.String()
}
