// Package render stores a benchmark's results and shows them: as JSON, as tables in the
// documentation, and as plots. It measures nothing.
package render

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/bench/harness"
)

// Report is a benchmark's results.
type Report struct {
	Began      time.Time         `json:"began"`
	Ended      time.Time         `json:"ended"`
	Full       bool              `json:"full"`
	Rounds     int               `json:"rounds"`
	Machine    string            `json:"machine"`
	Servers    map[string]string `json:"servers"`
	Loads      []float64         `json:"loads"` // of the machine before each run
	Contenders []Contender       `json:"contenders"`
	Scenarios  []Scenario        `json:"scenarios"`
}

// Contender is a contender with its setup.
type Contender struct {
	Key         string  `json:"key"`
	Server      string  `json:"server"`
	Version     string  `json:"version,omitempty"`
	Settings    string  `json:"settings"`
	NotRun      string  `json:"not_run,omitempty"`
	RoundTrips  float64 `json:"round_trips_per_task"`
	Connections int     `json:"connections"`
}

// Scenario has the runs of a scenario, by contender and in order.
type Scenario struct {
	Name  string                      `json:"name"`
	Title string                      `json:"title"`
	What  string                      `json:"what"`
	Waits bool                        `json:"waits,omitempty"`
	Runs  map[string][]harness.Sample `json:"runs"`

	Cannot []string `json:"cannot,omitempty"` // contenders that have no means for it
	Aside  []string `json:"aside,omitempty"`  // contenders that only the full benchmark has time for
}

// Read reads a file of results.
func Read(file string) (r Report, err error) {
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return r, fmt.Errorf("results: %w", err)
	}
	return r, nil
}

// Write writes a file of results.
func Write(file string, r Report) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("results: %w", err)
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// Figures are the medians of a contender's runs in a scenario. They are per task, except for
// PerSecond, History, Memory and the waits.
type Figures struct {
	PerSecond, ServerCPU, ClientCPU, WAL, Dead, Growth float64
	Memory                                             int64
	History, Tasks, Again                              int
	Waits                                              harness.Waits
	Void                                               string // of a void run; there are no figures if all were void
	Runs                                               int
}

func figures(samples []harness.Sample) (f Figures) {
	sound := slices.DeleteFunc(slices.Clone(samples), func(s harness.Sample) bool { return s.Void != "" })
	for _, s := range samples {
		if s.Void != "" {
			f.Void = s.Void
		}
	}
	if f.Runs = len(sound); f.Runs == 0 {
		return f
	}
	of := func(value func(s harness.Sample) float64) float64 {
		var all []float64
		for _, s := range sound {
			all = append(all, value(s))
		}
		return median(all)
	}
	each := func(value func(s harness.Sample) float64) float64 {
		return of(func(s harness.Sample) float64 { return value(s) / float64(max(s.Tasks, 1)) })
	}
	wait := func(value func(w harness.Waits) time.Duration) time.Duration {
		return time.Duration(of(func(s harness.Sample) float64 { return float64(value(s.Waits)) }))
	}
	f.PerSecond = of(perSecond)
	f.ServerCPU = each(func(s harness.Sample) float64 { return float64(s.ServerCPU) / 1e3 })
	f.ClientCPU = each(func(s harness.Sample) float64 { return float64(s.ClientCPU) / 1e3 })
	f.WAL = each(func(s harness.Sample) float64 { return float64(s.WAL) })
	f.Dead = each(func(s harness.Sample) float64 { return float64(s.Dead) })
	f.Growth = each(func(s harness.Sample) float64 { return float64(s.Growth) })
	f.Memory = int64(of(func(s harness.Sample) float64 { return float64(s.ClientMemory) }))
	f.History = int(of(func(s harness.Sample) float64 { return float64(s.History) }))
	f.Tasks = int(of(func(s harness.Sample) float64 { return float64(s.Tasks) }))
	f.Again = int(of(func(s harness.Sample) float64 { return float64(max(s.Calls-s.Tasks, 0)) }))
	f.Waits = harness.Waits{
		P50:  wait(func(w harness.Waits) time.Duration { return w.P50 }),
		P99:  wait(func(w harness.Waits) time.Duration { return w.P99 }),
		P999: wait(func(w harness.Waits) time.Duration { return w.P999 }),
		Max:  wait(func(w harness.Waits) time.Duration { return w.Max }),
	}
	return f
}

func perSecond(s harness.Sample) float64 { return float64(s.Tasks) / s.Took.Seconds() }

// ratio compares runs of the same round and returns the median, or 0 if unknown.
func ratio(first, second []harness.Sample, compare func(first, second harness.Sample) float64) float64 {
	var all []float64
	for i := range min(len(first), len(second)) {
		if first[i].Void != "" || second[i].Void != "" {
			continue
		}
		// A run that is too short to be measured gives no ratio.
		if r := compare(first[i], second[i]); !math.IsInf(r, 0) && !math.IsNaN(r) {
			all = append(all, r)
		}
	}
	if len(all) == 0 {
		return 0
	}
	return median(all)
}

func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	if n := len(sorted); n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[len(sorted)/2]
}

// firstOf returns the contender to compare with: Tusk on SQLite for contenders on SQLite, Tusk on
// PostgreSQL for all others.
func (r Report) firstOf(c Contender) string {
	if c.Server == "SQLite" {
		return "Tusk on SQLite"
	}
	return "Tusk"
}
