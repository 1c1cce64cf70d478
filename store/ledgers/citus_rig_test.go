package ledgers_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store/ledgers"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

const (
	// citusEnv names the coordinator of a cluster of at least two workers. Tests may write in its
	// database.
	citusEnv = "TUSK_TEST_CITUS"
	// citusBinEnv names a folder with the programs of a PostgreSQL installation that has Citus.
	// With them the tests start their own coordinator and two workers.
	citusBinEnv = "TUSK_TEST_CITUS_BIN"
)

// cluster is a Citus cluster. Its nodes are the coordinator, then the workers.
type cluster struct {
	servers []*pgtest.Server // of the nodes; nil if the test did not start them
	dsns    []string
}

var sharedCluster struct {
	once sync.Once
	*cluster
	err error
}

// citus returns the cluster that all tests share that do not kill it.
func citus(t testing.TB) *cluster {
	t.Helper()
	sharedCluster.once.Do(func() {
		if dsn := os.Getenv(citusEnv); dsn != "" {
			sharedCluster.cluster, sharedCluster.err = given(dsn)
		} else if bin := os.Getenv(citusBinEnv); bin != "" {
			sharedCluster.cluster, sharedCluster.err = startCluster(bin)
		}
	})
	if sharedCluster.err != nil {
		t.Fatal(sharedCluster.err)
	}
	if sharedCluster.cluster == nil {
		t.Skipf("SKIPPED, not tested: Citus: neither %s nor %s is set", citusEnv, citusBinEnv)
	}
	return sharedCluster.cluster
}

// citusToKill starts a cluster for one test.
func citusToKill(t testing.TB) *cluster {
	t.Helper()
	bin := os.Getenv(citusBinEnv)
	if bin == "" {
		t.Skipf("SKIPPED, not tested: a Citus cluster to kill: %s is not set", citusBinEnv)
	}
	c, err := startCluster(bin)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.stop)
	return c
}

// given returns a cluster that was started elsewhere.
func given(dsn string) (*cluster, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return nil, err
	}
	u.Scheme = "postgres"
	rows, err := ask(u.String(), "select nodename || ':' || nodeport from pg_dist_node where groupid > 0 order by groupid")
	c := &cluster{dsns: []string{u.String()}}
	for _, host := range rows {
		u.Host = host
		c.dsns = append(c.dsns, u.String())
	}
	if err == nil && len(c.dsns) < 3 {
		err = fmt.Errorf("%s: the cluster has fewer than two workers", citusEnv)
	}
	return c, err
}

func startCluster(bin string) (*cluster, error) {
	c := &cluster{}
	for range 3 {
		if err := c.addNode(bin); err != nil {
			c.stop()
			return nil, err
		}
	}
	return c, nil
}

// addNode adds a node: first the coordinator, then workers.
func (c *cluster) addNode(bin string) error {
	node, err := pgtest.StartOf(bin, "shared_preload_libraries=citus", "citus.node_conninfo=sslmode=disable",
		"max_prepared_transactions=200", "max_connections=200", "wal_level=logical")
	if err != nil {
		return err
	}
	c.servers, c.dsns = append(c.servers, node), append(c.dsns, node.DSN)
	call := map[bool]string{true: "citus_set_coordinator_host", false: "citus_add_node"}[len(c.servers) == 1]
	host, port := hostOf(node.DSN)
	ctx := context.Background()
	if err := node.Exec(ctx, "create extension citus"); err != nil {
		return err
	}
	return c.servers[0].Exec(ctx, fmt.Sprintf("select %s('%s', %s)", call, host, port))
}

func (c *cluster) stop() {
	for _, node := range c.servers {
		node.Stop()
	}
}

func hostOf(dsn string) (host, port string) {
	u, err := url.Parse(dsn)
	if err != nil {
		panic(err)
	}
	return u.Hostname(), u.Port()
}

var citusQueues atomic.Int32

// queue makes ledgers with a unique schema name on the workers, and drops them after the test. It
// returns the URL of the queue.
func (c *cluster) queue(t testing.TB, ledgerCount int, settings ...string) string {
	t.Helper()
	ctx := context.Background()
	schema := fmt.Sprintf("tusk_test_%d_%d", os.Getpid(), citusQueues.Add(1))
	u, err := url.Parse(c.dsns[0])
	if err != nil {
		t.Fatal(err)
	}
	u.Scheme = "citus"
	query := u.Query()
	for _, setting := range append(settings, "tusk_schema="+schema) {
		key, value, _ := strings.Cut(setting, "=")
		query.Set(key, value)
	}
	u.RawQuery = query.Encode()
	t.Cleanup(func() {
		for _, dsn := range c.dsns {
			if err := dropSchemas(ctx, dsn, schema); err != nil {
				t.Logf("%s: %v", dsn, err)
			}
		}
	})
	s := openCitus(t, u.String())
	defer s.Close()
	if err := s.Divide(ledgerCount); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Migrate(ctx, -1); err != nil {
		t.Fatal(err)
	}
	return u.String()
}

func openCitus(t testing.TB, dsn string) *ledgers.Store {
	t.Helper()
	s, err := ledgers.OpenCitus(context.Background(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// dropSchemas drops the schemas of a queue in a database.
func dropSchemas(ctx context.Context, dsn, schema string) error {
	c, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	names, err := texts(ctx, c, `select nspname from pg_namespace where nspname ~ $1`, "^"+schema+"_")
	if err == nil {
		_, err = c.Exec(ctx, "set citus.enable_ddl_propagation = off")
	}
	for _, name := range names {
		_, failed := c.Exec(ctx, "drop schema "+pgx.Identifier{name}.Sanitize()+" cascade")
		err = errors.Join(err, failed)
	}
	return err
}

// ask runs one query in a database.
func ask(dsn, question string, args ...any) ([]string, error) {
	ctx := context.Background()
	c, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	defer c.Close(ctx)
	return texts(ctx, c, question, args...)
}

func texts(ctx context.Context, c interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}, question string, args ...any) ([]string, error) {
	rows, err := c.Query(ctx, question, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
