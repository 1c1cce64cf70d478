package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/bench/harness"
	"github.com/tuskqueue/tusk/bench/peers"
)

// everydayRow is a row of what users do most: single tasks at a low rate.
type everydayRow struct {
	name      string
	shape     harness.Shape
	rate      float64
	processes int
	workers   int // per process
	idle      time.Duration
}

var everydayRows = []everydayRow{
	{"20 a second", harness.Single, 20, 1, 50, 0},
	{"100 a second", harness.Single, 100, 1, 50, 0},
	{"500 a second", harness.Single, 500, 1, 50, 0},
	{"100 a second, ten processes", harness.Single, 100, 10, 10, 0},
	{"in a user's transaction", harness.InTx, 100, 1, 50, 0},
	{"unique by key", harness.Unique, 100, 1, 50, 0},
	{"delayed by a second", harness.Delayed, 100, 1, 50, 0},
	{"retried once", harness.Retried, 100, 1, 50, 0},
	{"a tenant with a limit", harness.Limited, 100, 1, 50, 0},
	{"three-step workflow", harness.Workflow, 99, 1, 50, 0},
	{"ten idle processes", harness.Single, 20, 10, 10, 30 * time.Second},
}

const (
	everydayWork = 5 * time.Millisecond
	everydayFor  = 4 * time.Second
	everydayWarm = time.Second
	// The pauses between the warm-up and the measurement. By their end, what a leader does once after
	// its start is over, and idle processes have closed the connections that they opened for it.
	everydaySettle = 4 * time.Second
	idleSettle     = 2 * time.Minute
	// idleBar is how much of a core idle processes may use, in percent.
	idleBar = 0.5
)

// cannotEveryday reports whether a contender has no means for a row.
func cannotEveryday(c peers.Contender, r everydayRow) bool {
	switch {
	case r.shape == harness.Single && r.processes == 1:
		return false
	case strings.HasPrefix(c.Name, "Tusk"):
		return r.processes > 1 && c.Server != peers.Postgres
	case c.Server != peers.Postgres, r.shape == harness.Workflow:
		return true
	}
	return r.shape == harness.Limited && c.Name != "Graphile Worker"
}

func (r everydayRow) plan() harness.Plan {
	p := harness.Plan{Order: harness.Everyday, Batch: 500, Workers: r.workers, Producers: 1, Work: everydayWork,
		Rate: r.rate, Shape: r.shape,
		Processes: r.processes, Warm: int(r.rate * everydayWarm.Seconds()), Tasks: int(r.rate * everydayFor.Seconds()),
		Settle: everydaySettle, Idle: r.idle}
	if r.idle > 0 {
		p.Tasks, p.Settle = 0, idleSettle
	}
	if r.shape == harness.Workflow {
		p.Warm, p.Tasks = p.Warm/harness.Steps*harness.Steps, p.Tasks/harness.Steps*harness.Steps
	}
	return p
}

// everyday measures all rows. For Tusk's figures, it also says how they compare with the best peer
// on the same server.
func (b *bench) everyday(ctx context.Context) error {
	b.house = &house{postgresMore: []string{"shared_preload_libraries=pg_stat_statements", "pg_stat_statements.track=top"}}
	defer b.house.close()
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "row\tcontender\tp50\tp99\tserver CPU\tWAL\tstatements\tclient CPU\t")
	var names []string
	for _, c := range peers.Everyday() {
		if b.only.MatchString(c.Key()) {
			names = append(names, c.Key())
		}
	}
	if len(names) == 0 {
		return errors.New("no contender has such a name")
	}
	say("contenders: %s", strings.Join(names, "; "))
	for _, r := range everydayRows {
		if !b.scenarios.MatchString(r.name) {
			continue
		}
		runs := map[string][]harness.Sample{}
		var order []peers.Contender
		for round := range b.size.Rounds {
			order = nil
			for _, c := range peers.Everyday() {
				if !b.only.MatchString(c.Key()) || cannotEveryday(c, r) {
					continue
				}
				order = append(order, c)
			}
			for i := range order {
				c := order[(i+round)%len(order)]
				s, err := b.everydayOnce(ctx, c, r)
				if err != nil {
					s.Void = err.Error()
				}
				if s.Void != "" {
					fmt.Fprintf(out, "%s\t%s\tvoid: %s\n", r.name, c.Key(), s.Void)
					continue
				}
				runs[c.Key()] = append(runs[c.Key()], s)
			}
		}
		for _, c := range order {
			if all := runs[c.Key()]; len(all) > 0 {
				fmt.Fprintln(out, r.line(c.Key(), all))
			}
		}
		r.bars(out, order, runs)
		out.Flush()
	}
	return nil
}

func (b *bench) everydayOnce(ctx context.Context, c peers.Contender, r everydayRow) (s harness.Sample, err error) {
	if err := b.house.install(ctx, c); err != nil {
		return s, err
	}
	place, err := b.house.place(ctx, c.Server, false)
	if err != nil {
		return s, err
	}
	defer place.leave()
	if m, is := place.meter.(harness.PostgresMeter); is {
		if err := loadCounter(ctx, m.DSN); err != nil {
			return s, err
		}
		m.Counts = true
		place.meter = m
	}
	p := r.plan()
	p.Peer, p.Variant, p.Target = c.Name, c.Variant, place.target
	// On a busy machine, creating the tables alone has taken a minute.
	limited, cancel := context.WithTimeout(ctx, 3*time.Minute+p.Settle+p.Idle)
	defer cancel()
	return harness.Run(limited, b.house.command(c), p, place.meter, nil)
}

func loadCounter(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "create extension if not exists pg_stat_statements")
	return err
}

// everydayFigures are medians of the runs of a row.
type everydayFigures struct {
	// The waits are in ms. The other figures are us, bytes and statements per task, or per second for
	// idle workers.
	p50, p99, server, client, wal, statements float64
}

func (r everydayRow) figures(all []harness.Sample) everydayFigures {
	of := func(f func(s harness.Sample) float64) float64 {
		var values []float64
		for _, s := range all {
			values = append(values, f(s))
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	per := func(s harness.Sample) float64 {
		if r.idle > 0 {
			return s.Took.Seconds()
		}
		return float64(s.Tasks)
	}
	return everydayFigures{
		of(func(s harness.Sample) float64 { return s.Waits.P50.Seconds() * 1e3 }),
		of(func(s harness.Sample) float64 { return s.Waits.P99.Seconds() * 1e3 }),
		of(func(s harness.Sample) float64 { return s.ServerCPU.Seconds() * 1e6 / per(s) }),
		of(func(s harness.Sample) float64 { return s.ClientCPU.Seconds() * 1e6 / per(s) }),
		of(func(s harness.Sample) float64 { return float64(s.WAL) / per(s) }),
		of(func(s harness.Sample) float64 { return float64(s.Statements) / per(s) }),
	}
}

func (r everydayRow) line(who string, all []harness.Sample) string {
	f := r.figures(all)
	if r.idle > 0 {
		return fmt.Sprintf("%s\t%s\t\t\t%.2f %%\t%.0f B/s\t%.1f/s\t%.2f %%\t", r.name, who, f.server/1e4, f.wal, f.statements,
			f.client/1e4)
	}
	return fmt.Sprintf("%s\t%s\t%.1f ms\t%.1f ms\t%.0f us\t%.0f B\t%.2f\t%.0f us\t", r.name, who, f.p50, f.p99, f.server,
		f.wal, f.statements, f.client)
}

// bars prints whether Tusk takes at most what the best peer on its server takes.
func (r everydayRow) bars(out *tabwriter.Writer, order []peers.Contender, runs map[string][]harness.Sample) {
	for _, c := range order {
		all := runs[c.Key()]
		if !strings.HasPrefix(c.Name, "Tusk") || len(all) == 0 {
			continue
		}
		own := r.figures(all)
		if r.idle > 0 {
			verdict(out, c.Key(), "% of a core", own.server/1e4, idleBar)
			continue
		}
		cpu, p99 := 0.0, 0.0
		for _, peer := range order {
			if peer.Server != c.Server || peer.Name == c.Name || len(runs[peer.Key()]) == 0 {
				continue
			}
			f := r.figures(runs[peer.Key()])
			if cpu == 0 || f.server+f.client*file(c) < cpu {
				cpu = f.server + f.client*file(c)
			}
			if p99 == 0 || f.p99 < p99 {
				p99 = f.p99
			}
		}
		if cpu > 0 {
			verdict(out, c.Key(), "CPU of the best peer's", (own.server+own.client*file(c))/cpu, 1)
			verdict(out, c.Key(), "p99 of the best peer's", own.p99/p99, 1)
		}
	}
}

// file returns 1 for SQLite, which has no server: its processor time is the client's alone.
func file(c peers.Contender) float64 {
	if c.Server == peers.SQLite {
		return 1
	}
	return 0
}

func verdict(out *tabwriter.Writer, who, what string, figure, limit float64) {
	word := "MISS"
	if figure <= limit {
		word = "PASS"
	}
	fmt.Fprintf(out, "%s\t%s\t%.2f <= %.2f\t%s\t\t\t\t\t\n", word, who, figure, limit, what)
}
