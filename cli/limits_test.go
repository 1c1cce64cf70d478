package cli

import (
	"slices"
	"strings"
	"testing"
)

func TestLimitsAreSetListedShownAndRemoved(t *testing.T) {
	sh := filledShell(t)
	sh.fails(exitNotFound, "unknown_queue", []string{"--create"}, "limits", "set", "mail", "--concurrency", "20")
	sh.must("limits", "set", "mail", "--create", "--concurrency", "20", "--per-tenant", "2", "--per-worker", "3",
		"--tenant", "acme=5:3", "--tenant-rate", "100/1m")
	for range 3 {
		sh.must("enqueue", "send", "--queue", "mail", "--tenant", "acme", "--partition", "p", "--weight", "2")
	}
	rows := sh.json("limits", "list")
	if len(rows) != 1 || rows[0]["queue"] != "mail" || rows[0]["per_worker"] != 3.0 || rows[0]["held"] != 0.0 ||
		rows[0]["waiting"] != 3.0 {
		t.Errorf("%v", rows)
	}
	if rate := rows[0]["tenant_rate"].(map[string]any); rate["allowed"] != 100.0 || rate["period_seconds"] != 60.0 {
		t.Errorf("%v", rate)
	}
	rows = sh.json("limits", "show", "mail")
	if len(rows) != 1 || rows[0]["tenant"] != "acme" || rows[0]["partition"] != "p" || rows[0]["held"] != 0.0 ||
		rows[0]["waiting"] != 3.0 || rows[0]["more"] != false {
		t.Errorf("%v", rows)
	}
	sh.fails(exitNotFound, "unknown_queue", []string{"queue mial", "did you mean mail?"}, "limits", "show", "mial")
	sh.must("limits", "remove", "mail")
	sh.must("tasks", "delete", "--all", "--yes")
	sh.must("enqueue", "letter", "--queue", "mail")
	if r := sh.run("limits", "show", "mail"); r.status != 0 || !strings.Contains(r.err, "mail has no limits") {
		t.Errorf("without limits: %+v", r)
	}
	if rows := sh.json("limits", "list"); len(rows) != 0 {
		t.Errorf("%v", rows)
	}
	sh.fails(exitUsage, "usage", []string{"100/1m"}, "limits", "set", "mail", "--rate", "fast")
}

func TestQueuesAgeUntilTheyAreToldNotTo(t *testing.T) {
	sh := filledShell(t)
	sh.fails(exitNotFound, "unknown_queue", []string{"--create"}, "queues", "age", "mail", "--every", "5m")
	sh.must("queues", "age", "mail", "--create", "--every", "5m", "--to", "-3")
	sh.must("queues", "age", "mail", "--off")
	sh.fails(exitUsage, "usage", []string{"--every"}, "queues", "age", "mail")
}

func TestQueuesKeepTheirTasksForAsLongAsTheyAreTold(t *testing.T) {
	sh := filledShell(t)
	sh.fails(exitNotFound, "unknown_queue", []string{"--create"}, "queues", "keep", "mail", "--completed", "forever")
	sh.must("queues", "keep", "mail", "--create", "--completed", "forever", "--discarded", "7d")
	keeping := func() (kept []any) {
		for _, row := range sh.json("queues", "list") {
			if row["name"] == "mail" {
				kept = []any{row["keep_completed"], row["keep_cancelled"], row["keep_discarded"]}
			}
		}
		return kept
	}
	if got := keeping(); !slices.Equal(got, []any{"forever", nil, "7d"}) {
		t.Errorf("%v", got)
	}
	sh.must("queues", "keep", "mail", "--off")
	if got := keeping(); slices.ContainsFunc(got, func(v any) bool { return v != nil }) {
		t.Errorf("%v", got)
	}
	sh.fails(exitUsage, "usage", []string{"--completed"}, "queues", "keep", "mail")
	sh.fails(exitUsage, "usage", []string{"duration"}, "queues", "keep", "mail", "--completed", "always")
}

func TestBenchComparesLimitsWithNone(t *testing.T) {
	sh := filledShell(t)
	for _, scenario := range []string{"tenants", "fair", "beside"} {
		out := sh.must("bench", "--scenario", scenario, "--tasks", "300", "--batch", "50", "--json", "--db", "sqlite:tusk.db",
			"--queue", "bars")
		report := decodeOne(t, out)
		if verdict := report["verdict"]; verdict != "PASS" && verdict != "MISS" || !(report["ratio"].(float64) > 0) ||
			report["bar"] == nil {
			t.Errorf("%s: %s", scenario, out)
		}
	}
	if rows := sh.json("limits", "list"); len(rows) != 0 {
		t.Errorf("left behind: %v", rows)
	}
}
