// Command postgres runs Tusk beside the founding article's own tables and
// functions on one PostgreSQL server, and prints the ratios: tasks per second
// produced and consumed together, with and without a transaction held open, and
// the server's processor time for each.
//
// It may touch the server that -dsn names: it makes two schemas there, and drops
// them. Figures go to stdout, as a table or as JSON.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// setting is what both contenders of a round are given.
type setting struct {
	tasks     int
	batch     int // of producers and of consumers
	producers int
	consumers int
	payload   string
	held      bool // a transaction is held open all the while
}

// contender takes tasks through their life: producers and consumers at once. It
// returns how long that took.
type contender struct {
	name string
	run  func(ctx context.Context, pool *pgxpool.Pool, s setting) (time.Duration, error)
}

var contenders = []contender{{"tusk", runTusk}, {"article", runArticle}}

// figure is what one run measured.
type figure struct {
	TasksPerS float64 `json:"tasks_per_s"`
	CPU       float64 `json:"server_cpu_us_per_task"`
	WAL       float64 `json:"wal_bytes_per_task"`
}

// row is the median of the runs of a setting.
type row struct {
	Batch   int     `json:"batch"`
	Held    bool    `json:"held"`
	Tusk    figure  `json:"tusk"`
	Article figure  `json:"article"`
	Speed   float64 `json:"speed_ratio"` // medians of the ratios of pairs
	CPU     float64 `json:"cpu_ratio"`
}

func main() {
	dsn := flag.String("dsn", os.Getenv("TUSK_BENCH_POSTGRES"), "server; default $TUSK_BENCH_POSTGRES")
	tasks := flag.Int("tasks", 200000, "tasks of a run")
	rounds := flag.Int("rounds", 5, "pairs of runs, interleaved")
	batches := flag.String("batches", "500,10000", "sizes of batches")
	asJSON := flag.Bool("json", false, "print JSON")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := compare(ctx, *dsn, *tasks, *rounds, *batches, *asJSON); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func compare(ctx context.Context, dsn string, tasks, rounds int, batches string, asJSON bool) error {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	var rows []row
	for _, text := range strings.Split(batches, ",") {
		s := setting{tasks: tasks, producers: 2, consumers: 2, payload: strings.Repeat("x", 60)}
		if _, err := fmt.Sscan(text, &s.batch); err != nil {
			return fmt.Errorf("batch %q: %w", text, err)
		}
		for _, s.held = range []bool{false, true} {
			r, err := measure(ctx, pool, s, rounds)
			if err != nil {
				return err
			}
			rows = append(rows, r)
		}
	}
	limit, err := compareCopy(ctx, pool, tasks, rounds)
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(os.Stdout).Encode(map[string]any{"together": rows, "enqueue_to_copy_ratio": limit})
	}
	fmt.Printf("%8s %6s %14s %14s %8s %12s %12s %8s %12s %12s\n", "batch", "held", "tusk/s", "article/s", "ratio", "tusk cpu us", "article cpu", "ratio", "tusk wal B", "article wal")
	for _, r := range rows {
		fmt.Printf("%8d %6v %14.0f %14.0f %8.2f %12.1f %12.1f %8.2f %12.0f %12.0f\n", r.Batch, r.Held, r.Tusk.TasksPerS, r.Article.TasksPerS, r.Speed,
			r.Tusk.CPU, r.Article.CPU, r.CPU, r.Tusk.WAL, r.Article.WAL)
	}
	fmt.Printf("enqueue / bare COPY: %.2f\n", limit)
	return nil
}

// measure runs pairs in turn, each pair beginning with the other one.
func measure(ctx context.Context, pool *pgxpool.Pool, s setting, rounds int) (row, error) {
	figures := map[string][]figure{}
	for round := range rounds {
		for i := range contenders {
			c := contenders[(i+round)%2]
			f, err := runOnce(ctx, pool, c, s)
			if err != nil {
				return row{}, fmt.Errorf("%s: %w", c.name, err)
			}
			figures[c.name] = append(figures[c.name], f)
			fmt.Fprintf(os.Stderr, "round %d batch %d held %v  %-8s %9.0f tasks/s  %5.1f us  %5.0f B\n", round+1, s.batch, s.held, c.name, f.TasksPerS, f.CPU, f.WAL)
		}
	}
	r := row{Batch: s.batch, Held: s.held, Tusk: medianOf(figures["tusk"]), Article: medianOf(figures["article"])}
	var speed, cpu []float64
	for i := range figures["tusk"] {
		speed = append(speed, figures["tusk"][i].TasksPerS/figures["article"][i].TasksPerS)
		cpu = append(cpu, figures["tusk"][i].CPU/figures["article"][i].CPU)
	}
	r.Speed, r.CPU = median(speed), median(cpu)
	return r, nil
}

func runOnce(ctx context.Context, pool *pgxpool.Pool, c contender, s setting) (figure, error) {
	meter, err := postgres.New(pool, postgres.Options{})
	if err != nil {
		return figure{}, err
	}
	if _, err := pool.Exec(ctx, "checkpoint"); err != nil {
		return figure{}, err
	}
	if s.held {
		release, err := hold(ctx, pool)
		if err != nil {
			return figure{}, err
		}
		defer release()
	}
	before, err := used(ctx, meter)
	if err != nil {
		return figure{}, err
	}
	took, err := c.run(ctx, pool, s)
	if err != nil {
		return figure{}, err
	}
	after, err := used(ctx, meter)
	n := float64(s.tasks)
	return figure{n / took.Seconds(), float64((after.ServerCPU - before.ServerCPU).Microseconds()) / n, float64(after.WALBytes-before.WALBytes) / n}, err
}

// used reads the server's counters; those of dead rows need a schema and are not
// asked for.
func used(ctx context.Context, s *postgres.Store) (store.Measures, error) { return s.Measure(ctx) }

// hold opens a transaction that pins the vacuum horizon.
func hold(ctx context.Context, pool *pgxpool.Pool) (release func(), err error) {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, "create temp table if not exists held(); select pg_current_xact_id()"); err != nil {
		return nil, err
	}
	return func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }, nil
}

func median(values []float64) float64 {
	values = slices.Sorted(slices.Values(values))
	return values[len(values)/2]
}

func medianOf(figures []figure) figure {
	pick := func(field func(figure) float64) float64 {
		var values []float64
		for _, f := range figures {
			values = append(values, field(f))
		}
		return median(values)
	}
	return figure{pick(func(f figure) float64 { return f.TasksPerS }), pick(func(f figure) float64 { return f.CPU }), pick(func(f figure) float64 { return f.WAL })}
}
