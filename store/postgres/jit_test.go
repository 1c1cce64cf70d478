package postgres_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store/postgres"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

// Compiling a plan takes up to a second. Maintenance closes lease after lease, each in a transaction of its own.
func TestMaintenanceClosesLeasesWithoutCompilingAPlan(t *testing.T) {
	dsn := pgtest.DSN(t)
	s, pool := open(t, dsn, true)
	ctx := t.Context()
	s.PackAll()
	w := startWorker(t, s)
	const leases = 3
	for range leases { // one task stays open; the user's transaction ends the others
		if _, err := s.Enqueue(ctx, newPacks(4, "q")); err != nil {
			t.Fatal(err)
		}
		tasks := claimSome(t, s, w, 4)
		if err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			_, err := finishIn(ctx, s, tx, tasks[:3])
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var plans, compiled []string
	config.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		mu.Lock()
		defer mu.Unlock()
		plans = append(plans, n.Message)
		if strings.Contains(n.Message, "JIT:") {
			compiled = append(compiled, n.Message)
		}
	}
	config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx,
			`load 'auto_explain'; set auto_explain.log_min_duration = 0; set auto_explain.log_nested_statements = on;
			set auto_explain.log_level = notice; set client_min_messages = notice`)
		return err
	}
	explained, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(explained.Close)
	e, err := postgres.New(ctx, explained, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	if err := e.Maintain(ctx, lead(t, s)); err != nil {
		t.Fatal(err)
	}
	if n := number(t, pool, "select count(*) from tusk.finished"); n != 0 {
		t.Errorf("%d ends of tasks are not closed", n)
	}
	if len(plans) < 10*leases {
		t.Errorf("the server told %d plans", len(plans))
	}
	if len(compiled) > 0 {
		t.Errorf("%d of %d plans were compiled, such as\n%s", len(compiled), len(plans), compiled[0])
	}
}
