package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/bench/harness"
	"github.com/tuskqueue/tusk/bench/peers"
	"github.com/tuskqueue/tusk/bench/render"
	"github.com/tuskqueue/tusk/bench/scenario"
)

// bench is a benchmark: the contenders and scenarios to run, and their size.
type bench struct {
	size      scenario.Size
	full      bool
	only      *regexp.Regexp // contenders to run
	scenarios *regexp.Regexp
	file      string

	house  *house
	report render.Report
	speed  map[string]float64 // tasks per second in the pilot run, by contender
}

// The first pilot run has pilotTasks tasks. Each further one has four times as many, until one is
// long enough to tell how many tasks a run should have.
const (
	pilotTasks  = 1000
	pilotLength = 600 * time.Millisecond
)

func (b *bench) measure(ctx context.Context) (err error) {
	b.house = &house{}
	defer func() { b.house.close() }()
	b.report = render.Report{Began: time.Now().UTC().Truncate(time.Second), Full: b.full, Rounds: b.size.Rounds,
		Machine: machine()}
	b.speed = map[string]float64{}
	present := b.pilot(ctx)
	if len(present) == 0 {
		return errors.New("no contender could be run")
	}
	chosen := slices.DeleteFunc(slices.Clone(scenario.All), func(s scenario.Scenario) bool {
		return !b.scenarios.MatchString(s.Name)
	})
	for i, s := range chosen {
		share := time.Until(b.report.Began.Add(b.size.Within)) / time.Duration(len(chosen)-i)
		if err := b.through(ctx, s, present, share); err != nil {
			return err
		}
	}
	return nil
}

// pilot installs and tries every contender, and counts its round trips. Contenders that cannot be
// run are in the report with the reason.
func (b *bench) pilot(ctx context.Context) (present []peers.Contender) {
	for _, c := range peers.All() {
		if !b.only.MatchString(c.Key()) {
			continue
		}
		entry := render.Contender{Key: c.Key(), Server: string(c.Server), Settings: c.Settings, Version: c.Version()}
		err := b.try(ctx, c, &entry)
		if err != nil {
			entry.NotRun = err.Error()
			say("%-40s not run: %v", c.Key(), err)
		} else {
			say("%-40s %8.0f tasks/s in the pilot run", c.Key(), b.speed[c.Key()])
			present = append(present, c)
		}
		b.report.Contenders = append(b.report.Contenders, entry)
	}
	return present
}

func (b *bench) try(ctx context.Context, c peers.Contender, entry *render.Contender) error {
	if c.Full && !b.full {
		return errors.New("only in the full benchmark")
	}
	if err := b.house.install(ctx, c); err != nil {
		return err
	}
	order := harness.Together
	if slices.Contains(c.Cannot, "together") {
		order = harness.ProduceOnly
	}
	s := scenario.Scenario{Name: "pilot"}
	for tasks, relayed := pilotTasks, true; ; {
		s.Plan = func(scenario.Size, float64) harness.Plan {
			return harness.Plan{Order: order, Tasks: tasks, Batch: 500, Workers: 100, Producers: 2}
		}
		sample, counted, err := b.once(ctx, c, s, relayed)
		if err != nil {
			return err
		}
		if sample.Void != "" {
			return errors.New(sample.Void)
		}
		b.speed[c.Key()] = likelySpeed(sample)
		if relayed {
			entry.RoundTrips, entry.Connections, relayed = counted.trips/pilotTasks, counted.connections, false
			continue
		}
		if float64(tasks)/b.speed[c.Key()] > pilotLength.Seconds() || tasks == b.size.Most {
			return nil
		}
		tasks = min(4*tasks, b.size.Most)
	}
}

// likelySpeed estimates how fast a contender would be if it had the machine to itself, by its
// processor time, but at most four times as fast as it was. So the number of tasks in its runs does
// not depend on what else the machine does.
func likelySpeed(s harness.Sample) float64 {
	was := float64(s.Tasks) / s.Took.Seconds()
	processors := float64(runtime.NumCPU()) / 1.5 // it would not keep all of them busy
	alone := processors * float64(s.Tasks) / max((s.ServerCPU+s.ClientCPU).Seconds(), 0.01)
	return max(was, min(4*was, alone))
}

// through takes all contenders through a scenario, in turn. Each round begins with another
// contender. There is at least one round; further ones run only if they fit into the scenario's
// share of the time.
func (b *bench) through(
	ctx context.Context, s scenario.Scenario, present []peers.Contender, share time.Duration,
) error {
	entry := render.Scenario{Name: s.Name, Title: s.Title, What: s.What, Waits: s.Waits,
		Runs: map[string][]harness.Sample{}}
	var able []peers.Contender
	for _, c := range present {
		switch {
		case slices.Contains(c.Cannot, s.Name):
			entry.Cannot = append(entry.Cannot, c.Key())
		case c.Aside && !s.Main && !b.full:
			entry.Aside = append(entry.Aside, c.Key())
		default:
			able = append(able, c)
		}
	}
	began := time.Now()
	for round := range b.size.Rounds {
		spent := time.Since(began)
		if b.size.Within > 0 && round > 0 && spent+spent/time.Duration(round) > share {
			break
		}
		for i := range able {
			c := able[(i+round)%len(able)]
			sample, _, err := b.once(ctx, c, s, false)
			if ctx.Err() != nil {
				return fmt.Errorf("%s, %s: %w", s.Name, c.Key(), ctx.Err())
			} else if err != nil {
				sample.Void = err.Error()
			}
			entry.Runs[c.Key()] = append(entry.Runs[c.Key()], sample)
			b.report.Loads = append(b.report.Loads, load())
			say("%-10s %d  %-40s %s", s.Name, round+1, c.Key(), render.Line(sample))
		}
	}
	b.report.Scenarios = append(b.report.Scenarios, entry)
	return b.save(ctx)
}

// save writes the results so far.
func (b *bench) save(ctx context.Context) error {
	b.report.Ended = time.Now().UTC().Truncate(time.Second)
	b.report.Servers = b.house.versions(ctx)
	if err := os.MkdirAll(filepath.Dir(b.file), 0o755); err != nil {
		return err
	}
	return render.Write(b.file, b.report)
}

// once does one run in an empty database. Through a relay, the run is for counting and not for
// timing.
func (b *bench) once(
	ctx context.Context, c peers.Contender, s scenario.Scenario, relayed bool,
) (sample harness.Sample, n counted, err error) {
	p := s.Plan(b.size, b.speed[c.Key()])
	p.Peer, p.Variant, p.Install = c.Name, c.Variant, os.Getenv(c.SQL)
	place, err := b.house.place(ctx, c.Server, relayed)
	if err != nil {
		return sample, n, err
	}
	defer place.leave()
	p.Target = place.target
	var around harness.Surroundings
	if s.Around != nil {
		around = s.Around(place.where)
	}
	limited, cancel := context.WithTimeout(ctx, patience(b.size, p))
	defer cancel()
	sample, err = harness.Run(limited, b.house.command(c), p, place.meter, around)
	return sample, place.counted(), err
}

// patience is how long a run may take, including the creation of its tables. It is far longer than
// a run should take.
func patience(size scenario.Size, p harness.Plan) time.Duration {
	return 90*time.Second + time.Duration(20*size.Seconds*float64(time.Second)) + 2*p.Patience + p.DueIn
}

func say(format string, values ...any) { fmt.Fprintf(os.Stderr, format+"\n", values...) }
