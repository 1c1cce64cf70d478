// Command turns measures queues with limits on SQLite, PostgreSQL and MariaDB, with the scenarios
// of `tusk bench` for them. Each scenario runs in a fresh database, on servers that the command
// starts and stops one after another. It prints what the scenarios print.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tuskqueue/tusk/bench/servers"
)

func main() {
	tusk := flag.String("tusk", "tusk", "the program")
	tasks := flag.Int("tasks", 40_000, "tasks of tenants and tenants-held")
	heavy := flag.Int("heavy", 100_000, "tasks of fair's heavy tenant")
	engines := flag.String("engines", "sqlite,postgres,mysql", "which, by commas")
	scenarios := flag.String("scenarios", "tenants,tenants-held,fair", "which, by commas")
	runs := flag.Int("runs", 1, "runs of each")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	measure := func(dsn, scenario string) error {
		n := *tasks
		if scenario == "fair" {
			n = *heavy
		}
		c := exec.CommandContext(ctx, *tusk, "bench", "--auto-migrate", "--json", "--db", dsn, "--scenario", scenario,
			"--tasks", strconv.Itoa(n))
		c.Stdout, c.Stderr = os.Stdout, os.Stderr
		return c.Run()
	}
	for range *runs {
		for _, engine := range strings.Split(*engines, ",") {
			if err := onEngine(ctx, engine, strings.Split(*scenarios, ","), measure); err != nil {
				fmt.Fprintf(os.Stderr, "turns: %s: %v\n", engine, err)
				os.Exit(1)
			}
		}
	}
}

// onEngine measures scenarios, each in its own database.
func onEngine(ctx context.Context, engine string, scenarios []string, measure func(dsn, scenario string) error) error {
	database, end, err := start(ctx, engine)
	if err != nil {
		return err
	}
	defer end()
	for _, scenario := range scenarios {
		dsn, err := database()
		if err != nil {
			return err
		}
		if err := measure(dsn, scenario); err != nil {
			return fmt.Errorf("%s: %w", scenario, err)
		}
	}
	return nil
}

// start starts an engine's server, if it has one. database creates an empty database.
func start(ctx context.Context, engine string) (database func() (string, error), end func(), err error) {
	switch engine {
	case "sqlite":
		folder, err := os.MkdirTemp("", "tusk-turns-")
		n := 0
		return func() (string, error) {
			n++
			return "sqlite:" + filepath.Join(folder, fmt.Sprintf("%d.db", n)), nil
		}, func() { os.RemoveAll(folder) }, err
	case "postgres":
		p, err := servers.StartPostgres()
		if err != nil {
			return nil, nil, err
		}
		return func() (string, error) { return p.Database(ctx) }, p.Stop, nil
	case "mysql":
		m, err := servers.StartMySQL()
		if err != nil {
			return nil, nil, err
		}
		return m.Database, m.Stop, nil
	}
	return nil, nil, fmt.Errorf("unknown engine")
}
