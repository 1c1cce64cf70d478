package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// Scenarios of tusk bench.
const (
	benchEnqueue        = "enqueue"
	benchConsume        = "consume"
	benchProduceConsume = "produce-consume"
	benchLatency        = "latency"
	benchHeld           = "held"
)

type benchFlags struct {
	scenario              string
	tasks, batch, workers int
	rate, payload         int
	queue                 string
	yes                   bool
}

func newBenchCommand(app *App) *cobra.Command {
	b := benchFlags{scenario: benchProduceConsume}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure a database through the real library",
		Long: `Measure how fast tasks that do nothing go through a database, with the library's own
client and workers. Without --db or its variables, the command creates an SQLite file
and deletes it at the end.

  enqueue          store tasks; they run afterwards, unmeasured
  consume          run tasks that were stored before
  produce-consume  store and run them at the same time
  latency          the same at a steady --rate (default: 100/s), one task in ten
                   with a run time a second ahead
  held             produce-consume while another transaction is held open
  workflow         one graph of --tasks in layers of 100, each task after two of the
                   layer before, from enqueue to end
  fan              one graph: a first task, all others after it, and a last one
                   after those

The following scenarios compare a queue with limits with a queue without, or with
itself. They end with PASS or MISS: the ratio of the two measurements, or the second
measurement, against a threshold.

  tenants          produce-consume for 1,000 tenants, 10 tasks of each at a time;
                   at least 0.7 of the speed without limits
  tenants-held     the same limits while another transaction is held open; at
                   least 0.9 of the speed without that transaction, and at most one
                   dead row per 100 tasks; runs --tasks three times, the first
                   unmeasured
  fair             how long 50 tenants with 10 tasks each wait (p99) beside one
                   with --tasks; at most 250 ms
  beside           produce-consume on a queue without limits while another has
                   limits and 10,000 waiting tasks; at least 0.9 of the speed alone

p50 and p99 are the time from the call that enqueues a task until its handler starts;
due_to_start_p50 is the time from a task's run time until then. A value that an engine
cannot provide is null, or -.`,
		Example: `  tusk bench --tasks 100000 --batch 1000
  tusk bench --db postgres://localhost/test --scenario latency --rate 200 --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return app.bench(cmd.Context(), &b) },
	}
	f := cmd.Flags()
	f.Var(oneOf(&b.scenario, benchEnqueue, benchConsume, benchProduceConsume, benchLatency, benchHeld, benchWorkflow,
		benchFan, benchTenants, benchPinned, benchFair, benchBeside), "scenario",
		"enqueue, consume, produce-consume, latency, held, workflow, fan, tenants, tenants-held, fair or beside")
	f.Var(numberFlag(&b.tasks, 1, mostBenched), "tasks",
		"how many tasks are measured; default: 20000, 1000 with latency, 10000 with workflow and fan, 100000 with fair")
	f.Var(numberFlag(&b.batch, 1, tusk.MaxBatch), "batch",
		"tasks in one enqueue, and the most a worker claims ahead; default: 500, 1 with latency, 100 with tenants, "+
			"tenants-held and fair")
	f.IntVar(&b.workers, "workers", 1, "how many workers, and how many producers")
	f.IntVar(&b.rate, "rate", 0, "tasks enqueued per second, by all producers; default: no limit")
	f.IntVar(&b.payload, "payload", 100, "bytes of each task's args")
	f.StringVar(&b.queue, "queue", "bench", "the `queue` for the tasks, which should be empty")
	f.BoolVarP(&b.yes, "yes", "y", false, "delete the unfinished tasks of the queue first")
	return cmd
}

// mostBenched is the maximum number of tasks that are measured.
const mostBenched = 100_000_000

func (b *benchFlags) complete() error {
	if b.scenario == benchLatency {
		b.tasks, b.batch, b.rate = orElse(b.tasks, 1000), orElse(b.batch, 1), orElse(b.rate, 100)
	}
	most := mostBenched
	switch b.scenario {
	case benchWorkflow, benchFan:
		b.tasks, most = orElse(b.tasks, tusk.MaxWorkflow), tusk.MaxWorkflow
	case benchTenants, benchPinned:
		b.batch = orElse(b.batch, 100)
	case benchFair:
		b.tasks, b.batch = orElse(b.tasks, 100_000), orElse(b.batch, 100)
	}
	b.tasks, b.batch = orElse(b.tasks, 20000), orElse(b.batch, 500)
	for _, flag := range []struct {
		name             string
		value, low, high int
	}{
		{"tasks", b.tasks, 1, most}, {"batch", b.batch, 1, tusk.MaxBatch}, {"workers", b.workers, 1, 1000},
		{"rate", b.rate, 0, 10_000_000}, {"payload", b.payload, benchLeastPayload, tusk.MaxArgsBytes},
	} {
		if flag.value < flag.low || flag.value > flag.high {
			return usage("", "--%s %d: want %d to %d", flag.name, flag.value, flag.low, flag.high)
		}
	}
	return tusk.ValidateName("queue", b.queue)
}

func orElse(value, other int) int {
	if value == 0 {
		return other
	}
	return value
}

func (app *App) bench(ctx context.Context, b *benchFlags) error {
	if err := b.complete(); err != nil {
		return err
	}
	if app.config.source["log_level"] == sourceDefault {
		app.Log = slog.New(slog.DiscardHandler)
	}
	if app.config.source["db"] == sourceDefault {
		folder, err := os.MkdirTemp("", "tusk-bench-")
		if err != nil {
			return fmt.Errorf("bench: %w", err)
		}
		defer os.RemoveAll(folder)
		app.flags.db = "sqlite:" + filepath.Join(folder, "tusk.db")
	}
	where, err := parseDSN(app.flags.db)
	if err != nil {
		return err
	}
	client, closeStore, err := app.Client(ctx, creating)
	if err != nil {
		return err
	}
	defer closeStore()
	run := newBenchRun(client, b)
	run.where, run.embedded = where, where.engine == "sqlite"
	if err := run.ready(ctx); err != nil {
		return err
	}
	if _, ok := limitScenarios[b.scenario]; ok {
		report, err := run.bar(ctx)
		if err != nil {
			return err
		}
		report.Engine = where.engine
		return printOne(app, *report)
	}
	if b.scenario == benchHeld {
		release, err := hold(ctx, where)
		if err != nil {
			return err
		}
		defer release()
	}
	report, err := run.measure(ctx)
	if err != nil {
		return err
	}
	report.Engine = where.engine
	return printOne(app, *report)
}

// benchReport is the result of a benchmark.
type benchReport struct {
	Engine     string `json:"engine" col:"ENGINE"`
	Scenario   string `json:"scenario" col:"SCENARIO"`
	Tasks      int    `json:"tasks" col:"TASKS"`
	Batch      int    `json:"batch" col:"BATCH"`
	Workers    int    `json:"workers" col:"WORKERS"`
	PerSecond  figure `json:"tasks_per_s" col:"TASKS_PER_S"`
	CPU        figure `json:"server_cpu_us_per_task" col:"SERVER_CPU_US_PER_TASK"`
	WAL        figure `json:"wal_bytes_per_task" col:"WAL_BYTES_PER_TASK"`
	DeadRows   figure `json:"dead_rows" col:"DEAD_ROWS"`
	RoundTrips figure `json:"round_trips_per_task" col:"ROUND_TRIPS_PER_TASK"`
	Queries    figure `json:"queries" col:"QUERIES"`
	Conflicts  figure `json:"claim_conflicts" col:"CLAIM_CONFLICTS"`
	DueToStart figure `json:"due_to_start_p50_ms" col:"DUE_TO_START_P50_MS"`
	P50        figure `json:"p50_ms" col:"P50_MS"`
	P99        figure `json:"p99_ms" col:"P99_MS"`
}

// spend fills in the costs from the engine's counters.
func (r *benchReport) spend(before, after *store.Measures) {
	if before == nil || after == nil {
		return
	}
	perTask := func(before, after int64) figure {
		if before < 0 || after < 0 {
			return unknown
		}
		return figure(float64(after-before) / float64(r.Tasks))
	}
	count := func(before, after int64) figure {
		if after < 0 {
			return unknown
		}
		return figure(after - before)
	}
	r.CPU = perTask(before.ServerCPU.Nanoseconds(), after.ServerCPU.Nanoseconds())
	if r.CPU.known() {
		r.CPU /= 1000
	}
	r.WAL = perTask(before.WALBytes, after.WALBytes)
	r.DeadRows = count(before.DeadRows, after.DeadRows)
	r.RoundTrips = perTask(before.RoundTrips, after.RoundTrips)
	r.Queries = count(before.Queries, after.Queries)
	r.Conflicts = count(before.Conflicts, after.Conflicts)
}

// figure is a number that may be unknown. An unknown figure is NaN.
type figure float64

var unknown = figure(math.NaN())

func (f figure) known() bool { return !math.IsNaN(float64(f)) }

// MarshalJSON implements json.Marshaler. An unknown figure is null.
func (f figure) MarshalJSON() ([]byte, error) {
	if !f.known() {
		return []byte("null"), nil
	}
	return json.Marshal(math.Round(float64(f)*1000) / 1000)
}

func (f figure) String() string {
	if !f.known() {
		return "-"
	}
	return strconv.FormatFloat(math.Round(float64(f)*1000)/1000, 'f', -1, 64)
}

// quantile returns a quantile of durations in nanoseconds, as milliseconds.
func quantile(of []int64, q float64) figure {
	if len(of) == 0 {
		return unknown
	}
	const microsecond = int64(time.Microsecond)
	h := hdrhistogram.New(1, time.Hour.Microseconds(), 3)
	for _, d := range of {
		_ = h.RecordValue(min(max(d/microsecond, 1), time.Hour.Microseconds())) // within the histogram's range
	}
	return figure(float64(h.ValueAtQuantile(q)) / 1000)
}
