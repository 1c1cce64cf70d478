package cli

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

var benchNames = []string{"engine", "scenario", "tasks", "batch", "workers", "tasks_per_s", "server_cpu_us_per_task",
	"wal_bytes_per_task", "dead_rows", "round_trips_per_task", "queries", "claim_conflicts", "due_to_start_p50_ms",
	"p50_ms", "p99_ms"}

func TestBenchMeasuresEveryScenario(t *testing.T) {
	sh := filledShell(t)
	for _, c := range []struct {
		scenario string
		args     []string
		known    []string // known columns that other scenarios leave null
	}{
		{"enqueue", nil, nil},
		{"consume", []string{"--workers", "2"}, nil},
		{"produce-consume", []string{"--workers", "2", "--payload", "500"}, []string{"p50_ms", "p99_ms"}},
		{"produce-consume", []string{"--batch", "1", "--rate", "1000"}, []string{"p50_ms", "p99_ms"}},
		{"latency", []string{"--rate", "200"}, []string{"p50_ms", "p99_ms", "due_to_start_p50_ms"}},
		{"held", nil, []string{"p50_ms", "p99_ms"}},
		{"workflow", nil, nil},
		{"fan", nil, nil},
	} {
		out := sh.must(append([]string{"bench", "--scenario", c.scenario, "--tasks", "200", "--batch", "50", "--json", "--db",
			"sqlite:tusk.db"}, c.args...)...)
		if got := keysOf(t, out); !slices.Equal(got, benchNames) {
			t.Errorf("%s: names %q, want %q", c.scenario, got, benchNames)
		}
		report := decodeOne(t, out)
		if report["engine"] != "sqlite" || report["scenario"] != c.scenario || report["tasks"] != 200.0 ||
			!(report["tasks_per_s"].(float64) > 0) {
			t.Errorf("%s: %s", c.scenario, out)
		}
		for _, name := range []string{"p50_ms", "p99_ms", "due_to_start_p50_ms"} {
			if known := slices.Contains(c.known, name); known != (report[name] != nil) {
				t.Errorf("%s: %s is %v", c.scenario, name, report[name])
			}
		}
	}
	for _, q := range sh.json("queues", "list") {
		for _, state := range []string{"scheduled", "pending", "available", "running", "retryable"} {
			if q[state] != 0.0 {
				t.Errorf("left behind: %v", q)
			}
		}
	}
}

func TestBenchHoldsATransactionBesideAQueueWithLimits(t *testing.T) {
	sh := filledShell(t)
	out := sh.must("bench", "--scenario", "tenants-held", "--tasks", "200", "--batch", "50", "--json", "--db",
		"sqlite:tusk.db")
	report := decodeOne(t, out)
	sum := decodeOne(t, sh.must("stats", "--kind", "bench", "--by", "total", "--json", "--db", "sqlite:tusk.db"))
	// As many tasks again warm up. What runs first, in an empty database, is not compared.
	if done := sum["completed"].(float64); done != 3*(200+200) {
		t.Errorf("%v tasks were run", done)
	}
	if report["bar"] != 0.9 || report["dead_rows"] != 0.0 || !(report["with"].(float64) > 0) ||
		!(report["without"].(float64) > 0) {
		t.Errorf("%s", out)
	}
	for _, c := range []struct {
		ratio, dead figure
		want        bool
	}{{0.9, 2, true}, {0.89, 0, false}, {1, 3, false}, {1, unknown, true}} {
		if r := (&barReport{Tasks: 200, Ratio: c.ratio, Bar: 0.9, DeadRows: c.dead}); r.cleanAndFast() != c.want {
			t.Errorf("%+v", c)
		}
	}
}

func TestBenchMeasuresServers(t *testing.T) {
	t.Run("postgres", func(t *testing.T) { benchOn(t, "postgres", pgtest.DSN(t)) })
	t.Run("mysql", func(t *testing.T) { benchOn(t, "mysql", mysqltest.Database(t)) })
}

func benchOn(t *testing.T, engine, db string) {
	sh := newShell(t)
	for _, scenario := range []string{"produce-consume", "held", "workflow"} {
		out := sh.must("bench", "--scenario", scenario, "--tasks", "200", "--batch", "50", "--json",
			"--auto-migrate", "--db", db)
		report := decodeOne(t, out)
		if report["engine"] != engine || (report["p99_ms"] == nil) != (scenario == "workflow") ||
			report["wal_bytes_per_task"] == nil {
			t.Errorf("%s: %s", scenario, out)
		}
	}
}

func TestBenchLeavesTasksOfOthersAlone(t *testing.T) {
	sh := filledShell(t)
	sh.must("enqueue", "precious", "--queue", "bench")
	sh.fails(exitConflict, "queue_not_empty", []string{"1 unfinished task", "--yes"}, "bench", "--db", "sqlite:tusk.db",
		"--tasks", "10")
	sh.must("bench", "--db", "sqlite:tusk.db", "--tasks", "10", "--queue", "other")
	if left := sh.json("tasks", "list", "--state", "available"); len(left) != 1 {
		t.Errorf("%d tasks left", len(left))
	}
	sh.must("bench", "--db", "sqlite:tusk.db", "--tasks", "10", "--yes")
	if left := sh.json("tasks", "list", "--kind", "precious"); len(left) != 0 {
		t.Errorf("%d tasks left with --yes", len(left))
	}
}

func TestBenchRefusesWhatItCannotMeasure(t *testing.T) {
	sh := filledShell(t)
	for _, args := range [][]string{{"--tasks", "-1"}, {"--tasks", "0"}, {"--batch", "0"}, {"--batch", "100000"},
		{"--workers", "0"}, {"--rate", "-1"}, {"--payload", "3"}, {"--scenario", "fast"}} {
		sh.fails(exitUsage, "usage", nil, append([]string{"bench"}, args...)...)
	}
	_, err := hold(t.Context(), dsn{engine: "couchbase"})
	if p, ok := err.(*Problem); !ok || p.Code != "unsupported" {
		t.Errorf("held on couchbase: %v", err)
	}
}

func TestQuantilesAreExactToThreeDigits(t *testing.T) {
	var all []int64
	for n := range 1000 {
		all = append(all, int64(time.Duration(n+1)*time.Millisecond))
	}
	for q, want := range map[float64]float64{50: 500, 99: 990} {
		if got := float64(quantile(all, q)); math.Abs(got-want) > want/1000 {
			t.Errorf("p%v is %v ms, want %v", q, got, want)
		}
	}
	if quantile(nil, 50).known() {
		t.Error("a quantile of nothing is known")
	}
}
