// Command mysql runs Tusk beside the original article's own table and statements on one MySQL or
// MariaDB server, with durable commits. Workers claim and finish batches as fast as they can. It
// prints tasks per second, the processor time of server and client per task, round trips and
// deadlocks.
//
// Without -dsn it starts its own server (Debian's MariaDB) and stops it at the end. It makes
// databases whose names begin with tusk_bench, and drops them.
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
	"time"

	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
)

// args are the args of every task.
const args = `{"user":12345,"text":"abcdefghijklmnopqrstuvwxyz","list":[1,2,3,4,5,6,7,8]}`

type options struct {
	dsn            string
	workers, batch int
	tasks, rounds  int
	history        int
	soak           time.Duration
	json           bool
	alone          bool
	idle           int
}

// contender can run tasks from start to end.
type contender interface {
	name() string
	open(ctx context.Context, dsn string, workers int) error
	fill(ctx context.Context, n int) error
	// worker returns a function that claims and finishes a batch, and returns the number of its
	// tasks.
	worker(ctx context.Context, i, batch int) (func() (int, error), error)
	chores(ctx context.Context) error
	close() error
}

func main() {
	var o options
	flag.StringVar(&o.dsn, "dsn", os.Getenv("TUSK_BENCH_MYSQL"),
		"server, as mysql://user@host/; default $TUSK_BENCH_MYSQL, or a server of its own")
	flag.IntVar(&o.workers, "workers", 16, "workers")
	flag.IntVar(&o.batch, "batch", 20, "tasks of a claim")
	flag.IntVar(&o.tasks, "tasks", 100000, "tasks of a run")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds, in turn")
	flag.IntVar(&o.history, "history", 0, "also run Tusk with so many finished tasks in its tables")
	flag.DurationVar(&o.soak, "soak", 0, "instead run Tusk for so long, with producers, and count deadlocks")
	flag.BoolVar(&o.json, "json", false, "print JSON")
	flag.BoolVar(&o.alone, "alone", false, "run Tusk without the article beside it")
	flag.IntVar(&o.idle, "idle", 0,
		"instead measure so many processes that wait, and how long a task waits that comes to one, in so many rounds")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, &o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o *options) error {
	server := mysqltest.At(o.dsn)
	if o.dsn == "" {
		var err error
		if server, err = mysqltest.Launch("--innodb-buffer-pool-size=4G", "--innodb-log-file-size=1G"); err != nil {
			return err
		}
		defer server.Stop()
	}
	if o.idle > 0 {
		return idle(ctx, server, o)
	}
	if o.soak > 0 {
		return soak(ctx, server, o)
	}
	contenders := []contender{&article{}, &article{batched: true}, &engine{}, &engine{apart: true}}
	if o.alone {
		contenders = []contender{&engine{}}
	}
	if o.history > 0 {
		contenders = append(contenders, &engine{history: o.history})
	}
	var databases []string
	defer func() {
		for _, name := range databases {
			if err := server.Drop(name); err != nil {
				fmt.Fprintln(os.Stderr, "bench:", err)
			}
		}
	}()
	for i, c := range contenders {
		name := fmt.Sprintf("tusk_bench_%d_%d", os.Getpid(), i)
		dsn, err := server.Create(name)
		if err != nil {
			return err
		}
		databases = append(databases, name)
		if err := c.open(ctx, dsn, o.workers); err != nil {
			return fmt.Errorf("%s: %w", c.name(), err)
		}
		defer c.close()
	}
	figures, err := rounds(ctx, server, contenders, o)
	if err != nil {
		return err
	}
	return print(contenders, figures, o)
}

// rounds runs all contenders in turn. Each round begins with the next one.
func rounds(
	ctx context.Context, server *mysqltest.Server, contenders []contender, o *options,
) (map[string][]figure, error) {
	figures := map[string][]figure{}
	for round := range o.rounds {
		for i := range contenders {
			c := contenders[(i+round)%len(contenders)]
			f, err := measure(ctx, server, c, o)
			if err != nil {
				return nil, errors.Join(fmt.Errorf("%s: %w", c.name(), err), ctx.Err())
			}
			figures[c.name()] = append(figures[c.name()], f)
			fmt.Fprintf(os.Stderr, "round %d  %-24s %8.0f tasks/s  server %5.1f us  client %5.1f us  trips %.3f  deadlocks %d\n",
				round+1, c.name(), f.TasksPerS, f.ServerCPU, f.ClientCPU, f.Trips, f.Deadlocks)
		}
	}
	return figures, nil
}

// print prints medians, and how Tusk compares with the others.
func print(contenders []contender, figures map[string][]figure, o *options) error {
	medians, ratios := map[string]figure{}, map[string]float64{}
	for _, c := range contenders {
		all := figures[c.name()]
		medians[c.name()] = medianOf(all)
		if c.name() == "tusk" {
			continue
		}
		var speed []float64
		for i := range all {
			speed = append(speed, figures["tusk"][i].TasksPerS/all[i].TasksPerS)
		}
		ratios[c.name()] = median(speed)
	}
	if o.json {
		return json.NewEncoder(os.Stdout).Encode(map[string]any{"workers": o.workers, "batch": o.batch, "medians": medians,
			"tusk_to": ratios})
	}
	fmt.Printf("%d workers, batches of %d, medians of %d rounds\n", o.workers, o.batch, o.rounds)
	fmt.Printf("%-24s %10s %14s %14s %12s %10s %10s\n", "", "tasks/s", "server us/task", "client us/task", "trips/task",
		"deadlocks", "tusk is")
	for _, c := range contenders {
		f, ratio := medians[c.name()], ""
		if r, ok := ratios[c.name()]; ok {
			ratio = fmt.Sprintf("%.2f x", r)
		}
		fmt.Printf("%-24s %10.0f %14.1f %14.1f %12.3f %10d %10s\n", c.name(), f.TasksPerS, f.ServerCPU, f.ClientCPU, f.Trips,
			f.Deadlocks, ratio)
	}
	return nil
}

func median(values []float64) float64 {
	values = slices.Sorted(slices.Values(values))
	return values[len(values)/2]
}
