//go:build unix

package storm

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

// ground is what a storm rages on: a database with a server of its own, and the
// network in front of it.
type ground struct {
	name    string // sqlite, postgres, pgbouncer, mysql
	engine  string
	dsn     string // straight to the server
	via     string // what the processes are told
	file    string // of SQLite
	version string
	proxy   *proxy // nil: SQLite
	admin   *sql.DB
	pg      *pgtest.Server
	my      *mysqltest.Server
	bouncer *bouncer
}

func newGround(t *testing.T, name, dir string) *ground {
	t.Helper()
	g := &ground{name: name, engine: name}
	switch name {
	case "sqlite":
		g.file = filepath.Join(dir, "tusk.db")
		g.dsn = "sqlite:" + g.file
	case "postgres", "pgbouncer":
		g.engine = "postgres"
		server, err := pgtest.Start("max_connections=150", "deadlock_timeout=200ms")
		if err != nil {
			missingServer(t, "PostgreSQL", err)
		}
		t.Cleanup(server.Stop)
		g.pg, g.dsn = server, server.Database(t)
	case "mysql":
		g.my = mysqltest.Start(t)
		g.dsn = g.my.Database(t)
	default:
		t.Fatalf("no ground of the name %q: want sqlite, postgres, pgbouncer or mysql", name)
	}
	g.via = g.dsn
	if err := prepare(t.Context(), g.engine, g.dsn); err != nil {
		t.Fatal(err)
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
	if name == "pgbouncer" {
		g.bouncer = newBouncer(t, g.dsn)
		g.via = withHost(t, g.dsn, g.bouncer.addr(), "default_query_exec_mode=cache_describe")
	}
	if g.proxy, err = newProxy(hostOf(t, g.via)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.proxy.close)
	g.via = withHost(t, g.via, g.proxy.addr())
	return g
}

func (g *ground) readVersion(t *testing.T) {
	t.Helper()
	ask := map[string]string{"sqlite": "select 'SQLite ' || sqlite_version()", "postgres": "select 'PostgreSQL ' || current_setting('server_version')",
		"mysql": "select version()"}[g.engine]
	if err := g.admin.QueryRowContext(t.Context(), ask).Scan(&g.version); err != nil {
		t.Fatal(err)
	}
	if g.name == "pgbouncer" {
		g.version += " behind pgbouncer"
	}
}

// missingServer skips a test that has no server, unless all tests have to run.
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

// killServer kills the database server, as a power failure would, and starts it
// again on its data.
func (g *ground) killServer() error {
	if g.my != nil {
		g.my.Kill()
		return g.my.Run()
	}
	if err := g.pg.Kill(); err != nil {
		return err
	}
	return g.pg.Run()
}

// exec runs a statement of the storm's own, straight on the server.
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

// sessions returns the connections that the storm's processes have to the server.
func (g *ground) sessions(ctx context.Context) ([]int64, error) {
	if g.my != nil {
		return g.ids(ctx, "select id from information_schema.processlist where db = database() and id <> connection_id()")
	}
	return g.ids(ctx, "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'")
}

// bouncer is a pgbouncer in transaction mode.
type bouncer struct {
	t    *testing.T
	port int
	file string
	cred *syscall.Credential
	cmd  *exec.Cmd
}

func newBouncer(t *testing.T, dsn string) *bouncer {
	t.Helper()
	if _, err := exec.LookPath("pgbouncer"); err != nil {
		missingServer(t, "pgbouncer", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &bouncer{t: t, port: l.Addr().(*net.TCPAddr).Port}
	l.Close()
	dir, err := os.MkdirTemp("", "tusk-bouncer-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	_, port, _ := net.SplitHostPort(hostOf(t, dsn))
	config := fmt.Sprintf(`[databases]
* = host=127.0.0.1 port=%s user=postgres pool_size=12
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 300
server_login_retry = 1
`, port, b.port)
	b.file = filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(b.file, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		os.Chmod(dir, 0o755)
		nobody, err := user.Lookup("nobody")
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := strconv.ParseUint(nobody.Uid, 10, 32)
		b.cred = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
	}
	b.start()
	t.Cleanup(b.kill)
	return b
}

func (b *bouncer) addr() string { return fmt.Sprintf("127.0.0.1:%d", b.port) }

func (b *bouncer) start() {
	b.cmd = exec.Command("pgbouncer", b.file)
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: b.cred, Setpgid: true}
	if err := b.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", b.addr())
		if err == nil {
			c.Close()
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("pgbouncer does not answer: %v", err)
		}
	}
}

func (b *bouncer) kill() {
	b.cmd.Process.Kill()
	b.cmd.Wait()
}
