package server_test

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/enginetest"
	"github.com/tuskqueue/tusk/store/postgres"
)

// large is a PostgreSQL database with many tasks, and the pages for it.
type large struct {
	*site
	t      *testing.T
	pool   *pgxpool.Pool
	store  store.Store
	worker tusk.ID
	failed tusk.ID // a discarded task
	flow   tusk.ID // a workflow
}

// newLarge fills a database with n finished tasks, one in fifty of them discarded, and with wait waiting tasks.
func newLarge(t *testing.T, n, wait int, conns int32) *large {
	config, err := pgxpool.ParseConfig(enginetest.PostgresDSN(t))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = conns
	l := &large{t: t, worker: tusk.NewID()}
	if l.pool, err = pgxpool.NewWithConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.pool.Close)
	engine, err := postgres.New(t.Context(), l.pool, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l.store = engine
	client := newClient(t, l.store)
	if _, err := l.store.Extend(t.Context(), store.Beat{Worker: store.Worker{ID: l.worker, Host: "h"},
		TTL: 12 * time.Hour}); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	l.fill(n, wait)
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
	if _, err := l.pool.Exec(t.Context(), "vacuum analyze"); err != nil { // as autovacuum would do after a while
		t.Fatal(err)
	}
	t.Logf("filled in %v", time.Since(begun).Round(time.Second))
	l.site = startOn(t, client)
	return l
}

const (
	largeBatch = 10000
	largeSpan  = 30 * 24 * time.Hour // age of the oldest finished tasks
)

//go:embed testdata/large.sql
var largeText string

// fill writes into the tables what enqueues, claims and flushes would have written, and lets the leader do its part.
func (l *large) fill(n, wait int) {
	text := map[string]string{}
	functions := l.store.(*postgres.Store).FunctionSchema()
	for part := range strings.SplitSeq(strings.ReplaceAll(largeText, "tusk_fn", functions), "-- name: ") {
		name, rest, _ := strings.Cut(part, "\n")
		text[name] = rest
	}
	exec := func(name string, args ...any) {
		l.t.Helper()
		if _, err := l.pool.Exec(l.t.Context(), text[name], args...); err != nil {
			l.t.Fatal(name, err)
		}
	}
	exec("names")
	batches := n / largeBatch
	step, first := largeSpan/time.Duration(batches), time.Now().Add(-largeSpan)
	for i := range batches {
		var failed string
		err := l.pool.QueryRow(l.t.Context(), text["finished"], i, largeBatch, first.Add(time.Duration(i)*step), step,
			[16]byte(l.worker)).Scan(&failed)
		if err != nil {
			l.t.Fatal(err)
		}
		if l.failed, err = tusk.ParseID(failed); err != nil {
			l.t.Fatal(err)
		}
	}
	exec("claimed")
	for i := range wait / largeBatch {
		exec("waiting", i, largeBatch)
	}
	l.t.Logf("%d tasks are there", n+wait)
	if _, err := l.pool.Exec(l.t.Context(), "vacuum analyze"); err != nil { // as autovacuum would do after a while
		l.t.Fatal(err)
	}
	l.maintain()
}

// maintain does the leader's part.
func (l *large) maintain() {
	ctx := l.t.Context()
	leader := store.Candidate{ID: tusk.NewID(), TTL: time.Hour}
	lead, err := l.store.Lead(ctx, leader)
	if err != nil {
		l.t.Fatal(err)
	}
	for whole := false; !whole; {
		if err := l.store.(store.Maintainer).Maintain(ctx, lead.Term); err != nil {
			l.t.Fatal(err)
		}
		if err := l.pool.QueryRow(ctx,
			"select e.upto >= pg_snapshot_xmin(pg_current_snapshot()) or e.added + 5000 > (select sum(a.added) from "+
				"tusk.lane_tally a) from tusk.catalogue_end e").Scan(&whole); err != nil {
			l.t.Fatal(err)
		}
	}
	leader.Term, leader.TTL = lead.Term, 0
	if _, err := l.store.Lead(ctx, leader); err != nil {
		l.t.Fatal(err)
	}
}

// pages lists all pages and lists, with filters that match much, little, and nothing.
func (l *large) pages() []string {
	return []string{"/", "/?range=24h", "/?range=30d", "/queues", "/tasks", "/tasks?state=discarded",
		"/tasks?state=available&queue=w0", "/tasks?state=available", "/tasks?state=scheduled", "/tasks?state=retryable",
		"/tasks?state=pending", "/tasks?state=cancelled", "/tasks?state=running", "/tasks?state=completed",
		"/tasks?kind=kind-3-1", "/tasks?kind=kind-1-1&state=scheduled", "/tasks?state=discarded&tag=tag-3&kind=kind-2-1",
		"/tasks?tenant=tenant-7", "/tasks?tag=tag-3", "/tasks?tag=none", "/tasks?tag=order-1-47",
		"/tasks?tag=order-0-7&state=available", "/tasks?kind=rare-3", "/tasks?kind=rare-3&tag=region-1", "/tasks?kind=none",
		"/tasks?tenant=none", "/tasks?queue=none", "/tasks?key=none", "/tasks?fingerprint=f3&state=retryable,discarded",
		"/tasks?fingerprint=none", "/tasks?from=1h", "/tasks?state=completed&queue=q3&kind=kind-1-1",
		"/tasks?until=2020-01-01", "/tasks?until=300h", "/tasks?from=301h&until=300h&kind=kind-2-0",
		"/tasks?state=completed&queue=w0", "/tasks?from=24h&args=n%3D77", "/tasks?from=24h&args=nothing", "/tasks/" +
			l.failed.String(), "/errors", "/errors?window=all", "/workers", "/schedules", "/bulk", "/audit", "/access",
		"/pipelines", "/workflows", "/workflows/" + l.flow.String(), "/limits", "/limits?turns=w0", "/tenants",
		"/tenants/tenant-7", "/tenants/none", "/endpoints", "/settings", "/api/v1/stats", "/api/v1/queues",
		"/api/v1/tasks?limit=1000", "/api/v1/errors"}
}

// scanned returns how many rows were read by scans of whole tables, and how many by indexes, since the last call.
func (l *large) scanned() (whole map[string]int64, rows int64) {
	ctx := context.Background()
	c, err := l.pool.Acquire(ctx)
	if err != nil {
		l.t.Fatal(err)
	}
	defer c.Release()
	// It is the only connection of the pool, so its counts are available at once.
	if _, err := c.Exec(ctx, "select pg_stat_force_next_flush()"); err != nil {
		l.t.Fatal(err)
	}
	result, err := c.Query(ctx,
		"select relname::text, coalesce(seq_tup_read, 0), coalesce(idx_tup_fetch, 0) from pg_stat_user_tables where "+
			"schemaname = 'tusk' and n_live_tup > 1000")
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

// TestNoPageScansATable reads the statistics of PostgreSQL: no page reads a whole table, or more rows by an index
// than its budget allows.
func TestNoPageScansATable(t *testing.T) {
	if testing.Short() {
		t.Skip("fills a table")
	}
	l := newLarge(t, 2*largeBatch, 3*largeBatch, 1)
	for _, path := range l.pages() {
		l.do("GET", path, nil) // prepares statements, and reads what is read only once
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
		if n := fetched - rows; n > 120_000 {
			t.Errorf("%s fetches %d rows", path, n)
		} else if testing.Verbose() {
			t.Logf("%7d rows  %s", n, path)
		}
	}
}

// TestLargeTables measures how long pages take: TUSK_LARGE=5000000 go test -v -timeout 2h -run LargeTables ./server
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
		work := l.work()
		for range 3 {
			begun := time.Now()
			a := l.do("GET", path, nil)
			took = append(took, time.Since(begun))
			if a.status != 200 {
				t.Errorf("%s: %d", path, a.status)
			}
		}
		slices.Sort(took)
		t.Logf("%8.1f ms, %6.1f ms of the database's processors  %s", ms(took[1]), ms((l.work()-work)/3), path)
		slow = append(slow, took[1])
	}
	t.Logf("the slowest page took %v", slices.Max(slow).Round(time.Millisecond))
}

// work returns the CPU time that the database's processes have used.
func (l *large) work() time.Duration {
	m, err := l.store.(store.Meter).Measure(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	return m.ServerCPU
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
