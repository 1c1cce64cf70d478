package server_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

// large is a PostgreSQL database with many tasks, and pages over it.
type large struct {
	*site
	t      *testing.T
	pool   *pgxpool.Pool
	store  store.Store
	worker tusk.ID
	failed tusk.ID // one that gave up
	flow   tusk.ID // a workflow
}

// newLarge fills a database: n finished tasks, of which one in fifty gave up, and
// wait more that wait.
func newLarge(t *testing.T, n, wait int, conns int32) *large {
	config, err := pgxpool.ParseConfig(pgtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = conns
	l := &large{t: t, worker: tusk.NewID()}
	if l.pool, err = pgxpool.NewWithConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.pool.Close)
	engine, err := postgres.New(l.pool, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l.store = migrated(t, engine)
	client := newClient(t, l.store)
	if _, err := l.store.Extend(t.Context(), store.Beat{Worker: store.Worker{ID: l.worker, Host: "h"}, TTL: 12 * time.Hour}); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	for done := 0; done < n; done += largeBatch {
		queue := fmt.Sprintf("q%d", done/largeBatch%8)
		l.enqueue(client, tusk.Options{Queue: queue})
		l.finish(queue)
	}
	for waiting := 0; waiting < wait; waiting += largeBatch {
		o := tusk.Options{Queue: fmt.Sprintf("w%d", waiting/largeBatch%4)}
		if waiting/largeBatch%2 == 1 {
			o.Delay = time.Hour
		}
		l.enqueue(client, o)
	}
	w := tusk.NewWorkflow()
	first := w.Task("first", tusk.RawArgs{Name: "k", JSON: []byte("{}")}, &tusk.Options{Queue: "flow"})
	for i := range 50 {
		w.Task(fmt.Sprint("n", i), tusk.RawArgs{Name: "k", JSON: []byte("{}")}, &tusk.Options{Queue: "flow"}).After(first)
	}
	run, err := client.EnqueueWorkflow(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	l.flow = run.ID
	if _, err := l.pool.Exec(t.Context(), "vacuum analyze"); err != nil { // as autovacuum would after a while
		t.Fatal(err)
	}
	t.Logf("filled in %v", time.Since(begun).Round(time.Second))
	l.site = startOn(t, client)
	return l
}

const largeBatch = 10000

func (l *large) enqueue(client *tusk.Client, o tusk.Options) {
	tasks := make([]tusk.NewTask, largeBatch)
	for i := range tasks {
		own := o
		own.Tags = []string{fmt.Sprintf("tag-%d", i%7)}
		if i%3 > 0 {
			own.Tenant = fmt.Sprintf("tenant-%d", i%50)
		}
		if i%20 == 0 {
			own.Key = "key-" + tusk.NewID().String()
		}
		tasks[i] = tusk.NewTask{Args: tusk.RawArgs{Name: fmt.Sprintf("kind-%d", i%5), JSON: fmt.Appendf(nil, `{"n":%d}`, i)}, Options: &own}
	}
	if _, err := client.EnqueueMany(l.t.Context(), tasks); err != nil {
		l.t.Fatal(err)
	}
}

func (l *large) finish(queue string) {
	ctx := l.t.Context()
	for left := largeBatch; left > 0; {
		claimed, err := l.store.Claim(ctx, store.ClaimRequest{Worker: l.worker, Queues: []string{queue}, Limit: 2000, Token: store.NewToken()})
		if err != nil || len(claimed) == 0 {
			l.t.Fatal(len(claimed), err)
		}
		outcomes := make([]store.Outcome, len(claimed))
		for i := range claimed {
			outcomes[i] = store.Outcome{Task: &claimed[i], State: store.Completed, Attempt: 1, Ran: time.Millisecond}
			if i%50 == 0 {
				l.failed = claimed[i].ID
				outcomes[i].State, outcomes[i].Error, outcomes[i].Fingerprint, outcomes[i].Reason = store.Discarded, fmt.Sprintf("error %d", i), fmt.Sprintf("f%d", i/50%9), "gave up"
			}
		}
		if _, err := l.store.Finish(ctx, outcomes); err != nil {
			l.t.Fatal(err)
		}
		left -= len(claimed)
	}
}

// pages are all pages and lists, with filters that match much, little, and nothing.
func (l *large) pages() []string {
	return []string{"/", "/?range=24h", "/?range=30d", "/queues", "/tasks", "/tasks?state=discarded", "/tasks?state=available&queue=w0", "/tasks?state=available", "/tasks?state=scheduled", "/tasks?state=retryable",
		"/tasks?state=pending", "/tasks?state=cancelled", "/tasks?state=running", "/tasks?state=completed", "/tasks?kind=kind-3", "/tasks?tenant=tenant-7", "/tasks?tag=tag-3", "/tasks?tag=none", "/tasks?kind=none",
		"/tasks?tenant=none", "/tasks?queue=none", "/tasks?key=none", "/tasks?fingerprint=f3&state=retryable,discarded", "/tasks?fingerprint=none", "/tasks?from=1h", "/tasks?state=completed&queue=q3&kind=kind-1",
		"/tasks?until=2020-01-01", "/tasks?state=completed&queue=w0", "/tasks?from=24h&args=n%3D77", "/tasks?from=24h&args=nothing", "/tasks/" + l.failed.String(), "/errors", "/errors?window=all", "/workers", "/schedules", "/bulk", "/audit", "/access",
		"/pipelines", "/workflows", "/workflows/" + l.flow.String(), "/limits", "/limits?turns=w0", "/tenants", "/tenants/tenant-7", "/tenants/none", "/endpoints", "/settings", "/api/v1/stats", "/api/v1/queues", "/api/v1/tasks?limit=1000", "/api/v1/errors"}
}

// scanned says how many rows were read by scans of whole tables, and how many by
// indexes, since the last call.
func (l *large) scanned() (whole map[string]int64, rows int64) {
	ctx := context.Background()
	c, err := l.pool.Acquire(ctx)
	if err != nil {
		l.t.Fatal(err)
	}
	defer c.Release()
	// The only connection of the pool: what it has counted is known at once.
	if _, err := c.Exec(ctx, "select pg_stat_force_next_flush()"); err != nil {
		l.t.Fatal(err)
	}
	result, err := c.Query(ctx, "select relname::text, coalesce(seq_tup_read, 0), coalesce(idx_tup_fetch, 0) from pg_stat_user_tables where schemaname = 'tusk' and n_live_tup > 1000")
	if err != nil {
		l.t.Fatal(err)
	}
	defer result.Close()
	whole = map[string]int64{}
	for result.Next() {
		var name string
		var seq, idx int64
		if err := result.Scan(&name, &seq, &idx); err != nil {
			l.t.Fatal(err)
		}
		whole[name] = seq
		rows += idx
	}
	return whole, rows
}

// TestNoPageScansATable reads the statistics of PostgreSQL: no page reads a table
// from its beginning to its end, nor by an index more rows than its budget allows.
func TestNoPageScansATable(t *testing.T) {
	if testing.Short() {
		t.Skip("fills a table")
	}
	l := newLarge(t, 2*largeBatch, 3*largeBatch, 1)
	for _, path := range l.pages() {
		l.do("GET", path, nil) // prepares statements, and reads what is read once
		before, rows := l.scanned()
		if a := l.do("GET", path, nil); a.status != 200 {
			t.Errorf("%s: %d", path, a.status)
		}
		after, fetched := l.scanned()
		for name, n := range after {
			if n > before[name] {
				t.Errorf("%s reads %d rows of %s by a scan", path, n-before[name], name)
			}
		}
		if n := fetched - rows; n > 100000 {
			t.Errorf("%s fetches %d rows", path, n)
		} else if testing.Verbose() {
			t.Logf("%7d rows  %s", n, path)
		}
	}
}

// TestLargeTables tells how long pages take: TUSK_LARGE=5000000 go test -v -timeout 2h -run LargeTables ./server
func TestLargeTables(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("TUSK_LARGE"))
	if err != nil {
		t.Skip("fills a large table: set TUSK_LARGE to the number of finished tasks")
	}
	l := newLarge(t, n, n/5, 4)
	var slow []time.Duration
	for _, path := range l.pages() {
		l.do("GET", path, nil)
		var took []time.Duration
		for range 3 {
			begun := time.Now()
			a := l.do("GET", path, nil)
			took = append(took, time.Since(begun))
			if a.status != 200 {
				t.Errorf("%s: %d", path, a.status)
			}
		}
		slices.Sort(took)
		t.Logf("%8.1f ms  %s", float64(took[1].Microseconds())/1000, path)
		slow = append(slow, took[1])
	}
	t.Logf("the slowest page took %v", slices.Max(slow).Round(time.Millisecond))
}
