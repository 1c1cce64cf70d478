// Command sqlite runs Tusk, goqite and backlite beside each other on SQLite and
// prints how many tasks per second each takes through its whole life: enqueue,
// claim, finish.
//
// It may touch the three libraries' public APIs and temporary files, which it
// deletes. Figures go to stdout, as a table or as JSON.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// setting is what all contenders of a round are given.
type setting struct {
	mode    string // "batches" or "one by one"
	tasks   int
	single  int // tasks of contenders that are slow
	batch   int
	payload string // JSON
}

// contender takes tasks through their life on a file of its own: it stores all
// of them, then runs all of them. It reports how long each phase took.
type contender struct {
	name string
	mode string
	slow bool // runs as many tasks as one by one, whatever the mode
	run  func(ctx context.Context, path string, s setting) (enqueue, consume time.Duration, err error)
}

// contenders in the order of the table. The first of a mode is what the others
// are compared with.
var contenders = []contender{
	{"tusk", "batches", false, tuskBatches},
	{"goqite, its calls in transactions", "batches", false, goqiteBatches},
	{"goqite, its calls alone", "batches", true, goqiteOneByOne},
	{"backlite", "batches", true, backliteRun},
	{"tusk, client and worker", "one by one", true, tuskOneByOne},
	{"tusk, engine calls", "one by one", true, tuskEngineOneByOne},
	{"goqite", "one by one", true, goqiteOneByOne},
	{"backlite", "one by one", true, backliteRun},
}

func main() {
	batches := flag.Int("tasks", 20000, "tasks of a run in batches")
	single := flag.Int("single", 3000, "tasks of a run one by one")
	batch := flag.Int("batch", 1000, "tasks in a batch")
	payload := flag.Int("payload", 100, "bytes of a task's args")
	rounds := flag.Int("rounds", 5, "runs of each, interleaved")
	dir := flag.String("dir", "", "where the files are; default: the system's temporary folder")
	asJSON := flag.Bool("json", false, "print JSON")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	text := `{"pad":"` + strings.Repeat("x", max(*payload-10, 0)) + `"}`
	settings := []setting{
		{mode: "batches", tasks: *batches, single: *single, batch: *batch, payload: text},
		{mode: "one by one", tasks: *single, single: *single, batch: 1, payload: text},
	}
	if err := compare(ctx, settings, *rounds, *dir, *asJSON); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func compare(ctx context.Context, settings []setting, rounds int, dir string, asJSON bool) error {
	var rows []row
	for _, s := range settings {
		results, err := measure(ctx, s, rounds, dir)
		if err != nil {
			return err
		}
		rows = append(rows, results...)
	}
	if asJSON {
		return json.NewEncoder(os.Stdout).Encode(rows)
	}
	printTable(os.Stdout, rows)
	return nil
}

// measure runs every contender of a mode once a round, each round beginning with
// another one.
func measure(ctx context.Context, s setting, rounds int, dir string) ([]row, error) {
	of := slices.DeleteFunc(slices.Clone(contenders), func(c contender) bool { return c.mode != s.mode })
	rates := make([]rates, len(of))
	for round := range rounds {
		for i := range of {
			n := (i + round) % len(of)
			s := s.of(of[n])
			enqueue, consume, err := runOnce(ctx, of[n], s, dir)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", of[n].name, s.mode, err)
			}
			rates[n].add(s.tasks, enqueue, consume)
			fmt.Fprintf(os.Stderr, "round %d  %-10s  %-32s  %9.0f tasks/s\n", round+1, s.mode, of[n].name, rates[n].last())
		}
	}
	var rows []row
	for n, c := range of {
		rows = append(rows, rates[n].row(c, s.of(c), rates[0].median()))
	}
	return rows, nil
}

func (s setting) of(c contender) setting {
	if c.slow {
		s.tasks = min(s.tasks, s.single)
	}
	return s
}

func runOnce(ctx context.Context, c contender, s setting, dir string) (enqueue, consume time.Duration, err error) {
	folder, err := os.MkdirTemp(dir, "tusk-beside-")
	if err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(folder)
	return c.run(ctx, filepath.Join(folder, "queue.db"), s)
}
