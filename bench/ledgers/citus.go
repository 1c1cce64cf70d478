package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store/ledgers"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

// citusBinEnv names the directory with the programs of a PostgreSQL that has Citus.
const citusBinEnv = "TUSK_TEST_CITUS_BIN"

// citus compares the engine alone with the router over one ledger on a Citus worker, and over two
// ledgers on two workers.
func citus(ctx context.Context, b *bench) ([]bar, error) {
	bin := os.Getenv(citusBinEnv)
	if bin == "" {
		fmt.Println("citus: SKIPPED: " + citusBinEnv + " names no PostgreSQL that has Citus")
		return nil, nil
	}
	var all []*pgtest.Server
	defer func() {
		for _, s := range all {
			s.Stop()
		}
	}()
	for i := range 4 {
		settings := []string{"max_connections=400", "max_prepared_transactions=200"}
		if i > 0 {
			settings = append(settings, "shared_preload_libraries=citus", "citus.node_conninfo=sslmode=disable")
		}
		s, err := pgtest.StartOf(bin, settings...)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	figures, err := compare(ctx, b, []contender{
		{"alone", all[:1], func(ctx context.Context, dsns []string) (engine, error) { return alone(ctx, dsns[0]) }},
		{"a worker", all[1:3], onCitus},
		{"two workers", all[1:], onCitus},
	})
	if err != nil {
		return nil, err
	}
	own, one, two := figures["alone"], figures["a worker"], figures["two workers"]
	speed, cpu := func(f figure) float64 { return f.perSecond }, func(f figure) float64 { return f.server }
	seen := func(a, b []figure, of func(figure) float64, unit string) string {
		return fmt.Sprintf("%.4g %s to %.4g", medianOf(a, of), unit, medianOf(b, of))
	}
	return []bar{
		{ratios(one, own, speed), 0.85, true, "tasks/s of a ledger on a worker of Citus, of the engine alone",
			seen(one, own, speed, "a second")},
		{ratios(one, own, cpu), 1.15, false, "server CPU a task on a worker of Citus, of that alone",
			seen(one, own, cpu, "us")},
		{ratios(two, one, cpu), 1.4, false, "server CPU a task with two workers, of that with one",
			seen(two, one, cpu, "us")},
	}, nil
}

// onCitus makes a cluster out of databases, the coordinator's first, with a ledger on each worker.
func onCitus(ctx context.Context, dsns []string) (engine, error) {
	var failed error
	for i, dsn := range dsns {
		u, err := url.Parse(dsn)
		if err != nil {
			return nil, err
		}
		call := map[bool]string{true: "citus_set_coordinator_host", false: "citus_add_node"}[i == 0]
		failed = errors.Join(failed, run(ctx, dsn, "create extension citus"),
			run(ctx, dsns[0], fmt.Sprintf("select %s('%s', %s)", call, u.Hostname(), u.Port())))
	}
	if failed != nil {
		return nil, failed
	}
	s, err := ledgers.OpenCitus(ctx, dsns[0])
	if err != nil {
		return nil, err
	}
	if err := s.Divide(len(dsns) - 1); err != nil {
		return nil, err
	}
	_, err = s.Migrate(ctx, -1)
	return s, err
}

func run(ctx context.Context, dsn, text string) error {
	c, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	_, err = c.Exec(ctx, text)
	return err
}
