package render

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/bench/harness"
)

func sample(perSecond int, void string) harness.Sample {
	return harness.Sample{Result: harness.Result{Tasks: perSecond, Calls: perSecond, Took: time.Second},
		ServerCPU: time.Duration(perSecond) * 7 * time.Microsecond,
		WAL:       int64(perSecond) * 300, Void: void}
}

func report() Report {
	return Report{
		Rounds: 3, Machine: "a machine", Loads: []float64{1, 2}, Servers: map[string]string{"PostgreSQL": "15"},
		Contenders: []Contender{{Key: "Tusk", Server: "PostgreSQL"}, {Key: "Slow", Server: "PostgreSQL", Version: "v1"},
			{Key: "Absent", NotRun: "no such package"}, {Key: "Unable", Server: "PostgreSQL"}},
		Scenarios: []Scenario{{Name: "together", Title: "Produce and consume", Runs: map[string][]harness.Sample{
			"Tusk": {sample(1000, ""), sample(3000, ""), sample(2000, "")},
			"Slow": {sample(100, ""), sample(100, "lost 3 of 100 tasks"), sample(400, "")},
		}, Cannot: []string{"Unable"}, Aside: []string{"Slow, quickly"}}},
	}
}

func TestFiguresAreMediansOfSoundRuns(t *testing.T) {
	r := report()
	f := figures(r.Scenarios[0].Runs["Slow"])
	if f.PerSecond != 250 || f.Runs != 2 || f.Void != "lost 3 of 100 tasks" || f.ServerCPU != 7 || f.WAL != 300 {
		t.Errorf("%+v", f)
	}
	if f := figures([]harness.Sample{sample(5, "void")}); f.Runs != 0 || f.PerSecond != 0 {
		t.Errorf("%+v", f)
	}
}

func TestRatiosAreOfRunsOfTheSameRound(t *testing.T) {
	runs := report().Scenarios[0].Runs
	speed := func(a, b harness.Sample) float64 { return perSecond(a) / perSecond(b) }
	if got := ratio(runs["Tusk"], runs["Slow"], speed); got != 7.5 { // ratios of 10 and 5; the round between is void
		t.Errorf("ratio is %v, want 7.5", got)
	}
	if got := ratio(runs["Tusk"], nil, speed); got != 0 {
		t.Errorf("ratio to nobody is %v", got)
	}
}

func TestTheTableLeavesNobodyOut(t *testing.T) {
	text := report().markdown()
	for _, want := range []string{"| **Tusk** | 2,000 |", "Slow: 1 of 3 runs void: lost 3 of 100 tasks",
		"not run: no such package", "n/a: Unable", "only in the full benchmark: Slow, quickly", "| Slow | 7.5 |"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}

func TestDocsAreWrittenBetweenTheirMarks(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "bench-results.md")
	before := "before\n<!-- bench: begin, generated -->\nold\n<!-- bench: end -->\nafter\n"
	if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Docs(dir, report()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if s := string(text); !strings.HasPrefix(s, "before\n") || !strings.HasSuffix(s, "\nafter\n") ||
		strings.Contains(s, "old") || !strings.Contains(s, "images/bench-together.svg") {
		t.Errorf("docs are now:\n%s", s)
	}
	plot, err := os.ReadFile(filepath.Join(dir, "images/bench-together.svg"))
	if err != nil || !strings.Contains(string(plot), ">2,000</text>") {
		t.Errorf("plot: %v\n%s", err, plot)
	}
	if err := Docs(dir, Report{Full: true}); err == nil {
		t.Error("docs without the marks were written")
	}
}

func TestResultsAreReadAsTheyWereWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.json")
	if err := Write(file, report()); err != nil {
		t.Fatal(err)
	}
	r, err := Read(file)
	if err != nil || len(r.Scenarios) != 1 || r.Scenarios[0].Runs["Slow"][1].Void == "" {
		t.Errorf("%v, %+v", err, r)
	}
}
