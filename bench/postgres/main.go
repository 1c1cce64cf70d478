// Command postgres measures Tusk on PostgreSQL against its targets, beside others on the same
// server in the same run: the functions of "Database design for a massive cloud task scheduler", a
// bare COPY, SKIP LOCKED one by one, and itself under worse conditions. It prints every target with
// the measured figure and whether it was met.
//
// It uses the server that -dsn names, or starts one. There it creates schemas (tusk, article,
// ordered, onebyone) and drops them. It must run on the server's machine, because it reads the
// processor time of the server's processes. Figures go to stdout, as a table or as JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

// bench is the input of every scenario.
type bench struct {
	pool  *pgxpool.Pool
	long  bool
	tasks int // per run; 0 means the scenario's default
	pairs int
}

// size returns short or long, whichever fits the form of the run.
func (b *bench) size(short, long int) int {
	if b.long {
		return long
	}
	return short
}

// bar is a target.
type bar struct {
	Scenario string  `json:"scenario"`
	What     string  `json:"what"`
	Figure   float64 `json:"figure"`
	Limit    float64 `json:"limit"`
	AtLeast  bool    `json:"at_least"` // whether Limit is a minimum, not a maximum
	Pass     bool    `json:"pass"`
	Seen     string  `json:"seen"` // what the figure is computed from
}

func atLeast(limit, figure float64, what, seen string, values ...any) bar {
	return bar{What: what, Figure: figure, Limit: limit, AtLeast: true, Pass: figure >= limit,
		Seen: fmt.Sprintf(seen, values...)}
}

func atMost(limit, figure float64, what, seen string, values ...any) bar {
	return bar{What: what, Figure: figure, Limit: limit, Pass: figure <= limit, Seen: fmt.Sprintf(seen, values...)}
}

var scenarios = []struct {
	name string
	run  func(ctx context.Context, b *bench) ([]bar, error)
}{
	{"article", article},
	{"copy", compareCopy},
	{"held", held},
	{"invisible", invisible},
	{"backlog", backlog},
	{"small", small},
	{"slow", slow},
	{"singles", singles},
	{"steps", steps},
	{"queues", manyQueues},
	{"life", life},
	{"latency", latency},
	{"watched", watched},
	{"archive", archived},
}

func main() {
	var names []string
	for _, s := range scenarios {
		names = append(names, s.name)
	}
	dsn := flag.String("dsn", os.Getenv("TUSK_BENCH_POSTGRES"),
		"server; default $TUSK_BENCH_POSTGRES, else one that is started with stock settings, but 300 connections")
	chosen := flag.String("scenario", strings.Join(names, ","), "which, by commas")
	long := flag.Bool("long", false, "the long form: hours in all, and 20 GB of disk")
	tasks := flag.Int("tasks", 0, "tasks of a run of article, copy, small and singles; default: by form")
	pairs := flag.Int("pairs", 0, "runs of each contender, interleaved; default: 3, long 5")
	asJSON := flag.Bool("json", false, "print JSON")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	b := &bench{long: *long, tasks: *tasks, pairs: *pairs}
	if b.pairs == 0 {
		b.pairs = b.size(3, 5)
	}
	if err := onServer(ctx, b, *dsn, func() error {
		return run(ctx, b, strings.Split(*chosen, ","), *asJSON)
	}); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// onServer connects to the server, or starts one if none is named, and calls do.
func onServer(ctx context.Context, b *bench, dsn string, do func() error) (err error) {
	if dsn == "" {
		server, err := pgtest.Start("max_connections=300")
		if err != nil {
			return err
		}
		defer server.Stop()
		dsn = server.DSN
	}
	if b.pool, err = pgxpool.New(ctx, dsn); err != nil {
		return err
	}
	defer b.pool.Close()
	return do()
}

// run runs the chosen scenarios and prints each bar as soon as it is known.
func run(ctx context.Context, b *bench, chosen []string, asJSON bool) error {
	var all []bar
	for _, s := range scenarios {
		if !slices.Contains(chosen, s.name) {
			continue
		}
		bars, err := s.run(ctx, b)
		for i := range bars {
			bars[i].Scenario = s.name
			if !asJSON {
				printBar(bars[i])
			}
		}
		all = append(all, bars...)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	if len(all) == 0 {
		return errors.New("no such scenario")
	}
	if asJSON {
		return json.NewEncoder(os.Stdout).Encode(map[string]any{"bars": all, "long": b.long})
	}
	return nil
}

func printBar(b bar) {
	verdict, sign := "MISS", "<="
	if b.Pass {
		verdict = "PASS"
	}
	if b.AtLeast {
		sign = ">="
	}
	fmt.Printf("%-4s %-9s %8.2f %s %-6g %s  (%s)\n", verdict, b.Scenario, b.Figure, sign, b.Limit, b.What, b.Seen)
}
