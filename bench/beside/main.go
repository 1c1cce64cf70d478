// Command beside measures Tusk and its peers side by side. It starts their servers on this machine,
// takes each contender through each scenario in turn, several times, and writes the results to a
// JSON file and into the documentation.
//
// It may change its temporary folders, bench/results, bench/peers (where the peers of other
// languages are installed) and the documentation. With the argument "run" it is a runner: it takes
// one contender of its own language through a plan that it reads from its input.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"

	"github.com/tuskqueue/tusk/bench/harness"
	"github.com/tuskqueue/tusk/bench/peers"
	"github.com/tuskqueue/tusk/bench/render"
	"github.com/tuskqueue/tusk/bench/scenario"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := begin(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "beside:", err)
		os.Exit(1)
	}
}

func begin(ctx context.Context) error {
	if len(os.Args) == 2 && os.Args[1] == "run" {
		return harness.Serve(ctx, os.Stdin, os.Stdout, peers.Find)
	}
	full := flag.Bool("full", false, "longer runs, ten million tasks of history, and the peers from PyPI")
	only := flag.String("only", "", "contenders whose name matches this expression")
	scenarios := flag.String("scenarios", "", "scenarios whose name matches this expression")
	rounds := flag.Int("rounds", 0, "runs of each; default: 3, or 5 with -full")
	seconds := flag.Float64("seconds", 0, "that a run is to take; default: 1, or 15 with -full")
	results := flag.String("results", "", "file of the results; default: results/short.json or results/full.json")
	docs := flag.String("docs", "../docs", "the documentation that gets the tables; empty: none")
	everyday := flag.Bool("everyday", false,
		"single tasks at low rates, row by row, which -scenarios chooses; prints a table, and writes nothing")
	again := flag.Bool("render", false, "measure nothing: render the results again")
	flag.Parse()

	b := bench{size: scenario.Short, full: *full, file: "results/short.json"}
	if *full {
		b.size, b.file = scenario.Full, "results/full.json"
	}
	if *rounds > 0 {
		b.size.Rounds = *rounds
	}
	if *seconds > 0 {
		b.size.Seconds = *seconds
	}
	if *results != "" {
		b.file = *results
	}
	var err error
	if b.only, err = regexp.Compile("(?i)" + *only); err != nil {
		return err
	}
	if b.scenarios, err = regexp.Compile(*scenarios); err != nil {
		return err
	}
	if *everyday {
		b.size.Rounds = max(*rounds, 1)
		return b.everyday(ctx)
	}
	if !*again {
		if err := b.measure(ctx); err != nil {
			return err
		}
	}
	report, err := render.Read(b.file)
	if err != nil {
		return err
	}
	if *docs == "" {
		return render.Text(os.Stdout, report)
	}
	return render.Docs(*docs, report)
}
