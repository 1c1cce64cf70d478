package peers

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/bench/harness"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/mysql"
	"github.com/tuskqueue/tusk/store/postgres"
	"github.com/tuskqueue/tusk/store/sqlite/sqlitefile"
)

var (
	tuskPostgres = []Contender{tuskOn("Tusk", Postgres)}
	tuskSQLite   = []Contender{tuskOn("Tusk on SQLite", SQLite)}
	tuskMySQL    = []Contender{tuskOn("Tusk on MariaDB", MySQL)}
)

// claimsApart is the variant of everyday runs in which tasks that arrive within 20 ms share a claim.
const claimsApart = "20 ms between claims"

var tuskEveryday = Contender{Name: "Tusk", Variant: claimsApart, Server: Postgres, Version: commit,
	New:      func(string) harness.Peer { return &tuskPeer{engine: Postgres, claimEvery: 20 * time.Millisecond} },
	Settings: "as Tusk, and ClaimEvery 20 ms"}

func tuskOn(name string, server Server) Contender {
	return Contender{
		Name: name, Server: server, Version: commit, New: func(string) harness.Peer { return &tuskPeer{engine: server} },
		Settings: "EnqueueMany; one worker, ReadAhead as the batch; all else default",
	}
}

// commit returns the commit of the measured source, or its version if there is no git.
func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return tusk.Version()
	}
	return strings.TrimSpace(string(out))
}

type tuskPeer struct {
	engine Server
	// the worker's ClaimEvery
	claimEvery time.Duration

	plan   harness.Plan
	client *tusk.Client
	pool   *pgxpool.Pool  // nil unless on PostgreSQL
	db     *sql.DB        // for the user's transactions on other engines
	more   []*tusk.Client // of additional processes
	count  func(context.Context) ([]store.Count, error)
	close  func() error
}

func (t *tuskPeer) Open(ctx context.Context, p harness.Plan) error {
	t.plan = p
	open := map[Server]func(context.Context, string) error{Postgres: t.openPostgres, SQLite: t.openSQLite,
		MySQL: t.openMySQL}
	if err := open[t.engine](ctx, p.Target); err != nil {
		return err
	}
	if err := t.prepareEveryday(ctx); err != nil {
		return err
	}
	if p.Tenants > 0 {
		return t.client.SetLimits(ctx, tusk.DefaultQueue, tusk.Limits{}) // tenants take turns
	}
	return nil
}

func (t *tuskPeer) openPostgres(ctx context.Context, dsn string) error {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	counting, err := countingPool(ctx, dsn)
	if err != nil {
		pool.Close()
		return err
	}
	t.close = func() error { pool.Close(); counting.Close(); return nil }
	counter, err := postgres.New(ctx, counting, postgres.Options{})
	if err != nil {
		return err
	}
	t.count, t.pool = counter.Count, pool
	engine, err := postgres.New(ctx, pool, postgres.Options{})
	if err != nil {
		return err
	}
	if err := t.begin(ctx, engine); err != nil {
		return err
	}
	for range t.plan.Processes - 1 {
		other, err := postgres.Open(ctx, dsn)
		if err != nil {
			return err
		}
		client, err := tusk.NewClient(other, &tusk.ClientConfig{Logger: quiet})
		if err != nil {
			return err
		}
		t.more = append(t.more, client)
	}
	return nil
}

// countingPool returns a pool for Left alone, which is not measured. It has no just-in-time
// compilation, since that takes longer than counting.
func countingPool(ctx context.Context, dsn string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 1
	config.ConnConfig.RuntimeParams["jit"] = "off"
	return pgxpool.NewWithConfig(ctx, config)
}

func (t *tuskPeer) openSQLite(ctx context.Context, path string) error {
	engine, err := sqlitefile.Open(ctx, path)
	if err != nil {
		return err
	}
	t.close, t.count = engine.Close, engine.Count
	if t.plan.Shape == harness.InTx {
		if t.db, err = openFile(path); err != nil {
			return err
		}
	}
	return t.begin(ctx, engine)
}

func (t *tuskPeer) openMySQL(ctx context.Context, dsn string) error {
	engine, err := mysql.Open(ctx, dsn)
	if err != nil {
		return err
	}
	t.close, t.count = engine.Close, engine.Count
	if t.db, _, err = mysql.Pool(dsn); err != nil {
		return err
	}
	return t.begin(ctx, engine)
}

// begin creates the schema of an engine and a client for it.
func (t *tuskPeer) begin(ctx context.Context, engine interface {
	store.Store
	store.Migrator
}) (err error) {
	if _, err := engine.Migrate(ctx, -1); err != nil {
		return err
	}
	t.client, err = tusk.NewClient(engine, &tusk.ClientConfig{Logger: quiet})
	return err
}

type tuskArgs harness.Args

func (tuskArgs) Kind() string { return "work" }

func (t *tuskPeer) Enqueue(ctx context.Context, tasks []harness.Task) error {
	if t.plan.Shape != "" {
		return t.enqueueShaped(ctx, tasks[0])
	}
	batch := make([]tusk.NewTask, len(tasks))
	for i, task := range tasks {
		batch[i].Args = tuskArgs(task.Args())
		if !task.RunAt.IsZero() || t.plan.Tenants > 0 {
			batch[i].Options = &tusk.Options{RunAt: task.RunAt}
		}
		if t.plan.Tenants > 0 {
			batch[i].Options.Tenant = fmt.Sprintf("t%d", task.Tenant)
		}
	}
	_, err := t.client.EnqueueMany(ctx, batch)
	return err
}

func (t *tuskPeer) Work(ctx context.Context, handle func(n int)) error {
	mux := tusk.NewMux()
	tusk.HandleKind(mux, "work", func(_ context.Context, task *tusk.Task[json.RawMessage]) error {
		n, err := harness.Number(task.Args)
		if err == nil {
			handle(n)
		}
		if t.plan.Shape == harness.Retried && task.Attempt == 1 {
			return errOnce
		}
		return err
	})
	var workers errgroup.Group
	for _, client := range append([]*tusk.Client{t.client}, t.more...) {
		worker, err := tusk.NewWorker(client, mux, &tusk.WorkerConfig{Concurrency: t.plan.Workers,
			ReadAhead: t.plan.Batch, ClaimEvery: t.claimEvery})
		if err != nil {
			return err
		}
		workers.Go(func() error { return worker.Run(ctx) })
	}
	return workers.Wait()
}

// errOnce is the error of the first attempt of tasks of the shape Retried.
var errOnce = errors.New("the first attempt fails")

func (t *tuskPeer) Left(ctx context.Context) (left int, err error) {
	counts, err := t.count(ctx)
	for _, c := range counts {
		left += int(c.Tasks)
	}
	return left, err
}

func (t *tuskPeer) Close() error { return t.close() }

var quiet = slog.New(slog.DiscardHandler)
