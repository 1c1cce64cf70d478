// Command ledgers measures a queue in many ledgers against its targets: the router beside the
// engine alone, three servers beside one, the cost of idle workers, the effect of losing a server
// and of moving ledgers, and Citus workers if there is a PostgreSQL with Citus. It prints every
// target with the measured figure and whether it was met.
//
// It starts PostgreSQL servers on this machine in temporary folders, with default settings except
// for more connections. It must run on the same machine, because it reads the processor time of
// their processes.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/store/ledgers"
	"github.com/tuskqueue/tusk/store/postgres"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

// bench is the input of every scenario.
type bench struct {
	tasks, rounds int
	stored        int // waiting tasks in a ledger that moves
	lasts         time.Duration
}

// bar is a target.
type bar struct {
	figure, limit float64
	atLeast       bool // whether limit is a minimum, not a maximum
	what, seen    string
}

var scenarios = []struct {
	name string
	run  func(ctx context.Context, b *bench) ([]bar, error)
}{
	{"router", router},
	{"idle", idle},
	{"lost", lost},
	{"moves", moves},
	{"costs", costs},
	{"citus", citus},
}

var discard = slog.New(slog.DiscardHandler)

func main() {
	var names []string
	for _, s := range scenarios {
		names = append(names, s.name)
	}
	b := &bench{}
	chosen := flag.String("scenario", strings.Join(names, ","), "which, by commas")
	flag.IntVar(&b.tasks, "tasks", 400_000, "tasks of a run")
	flag.IntVar(&b.rounds, "rounds", 12, "runs of each contender, in turn")
	flag.IntVar(&b.stored, "stored", 200_000, "waiting tasks in a ledger that moves")
	flag.DurationVar(&b.lasts, "lasts", 20*time.Second, "how long idle and lost last")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	for _, s := range scenarios {
		if !slices.Contains(strings.Split(*chosen, ","), s.name) {
			continue
		}
		bars, err := s.run(ctx, b)
		for _, r := range bars {
			r.print(s.name)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", s.name, err)
			os.Exit(1)
		}
	}
}

func (r bar) print(scenario string) {
	verdict, sign, passed := "MISS", "<=", r.figure <= r.limit
	if r.atLeast {
		sign, passed = ">=", r.figure >= r.limit
	}
	if passed {
		verdict = "PASS"
	}
	fmt.Printf("%-4s %-7s %8.2f %s %-6g %s  (%s)\n", verdict, scenario, r.figure, sign, r.limit, r.what, r.seen)
}

// servers starts n servers.
func servers(n int) (all []*pgtest.Server, dsns []string, stop func(), err error) {
	stop = func() {
		for _, s := range all {
			s.Stop()
		}
	}
	for range n {
		s, err := pgtest.Start("max_connections=4000")
		if err != nil {
			stop()
			return nil, nil, nil, err
		}
		all, dsns = append(all, s), append(dsns, s.DSN)
	}
	return all, dsns, stop, nil
}

// divided opens a fresh queue with n ledgers.
func divided(ctx context.Context, n int, dsns ...string) (*ledgers.Store, error) {
	s, err := ledgers.Open(ctx, dsns...)
	if err != nil {
		return nil, err
	}
	if err := s.Divide(n); err != nil {
		return nil, err
	}
	_, err = s.Migrate(ctx, -1)
	return s, err
}

// alone opens a fresh queue of the engine without a router.
func alone(ctx context.Context, dsn string) (*postgres.Store, error) {
	s, err := postgres.Open(ctx, dsn)
	if err != nil {
		return nil, err
	}
	_, err = s.Migrate(ctx, -1)
	return s, err
}
