package cli

import (
	"database/sql"
	"strings"
	"testing"
)

func TestSchedulesAreAddedShownPausedRunAndRemoved(t *testing.T) {
	sh := filledShell(t)
	r := sh.run("schedules", "add", "nightly", "30 2 * * 1-5", "report", `{"a":1}`, "--zone", "Europe/Berlin", "--overlap",
		"buffer", "--missed", "all", "--cap", "5", "--jitter", "10s", "--queue", "reports", "--priority", "3", "--tags", "x",
		"--max-attempts", "2")
	if r.status != exitOK || !strings.Contains(r.err, "at 02:30 on Monday to Friday, Europe/Berlin time") {
		t.Errorf("status %d, %s", r.status, r.err)
	}
	sh.must("schedules", "add", "often", "@every 15m", "sync")
	rows := sh.json("schedules", "list")
	if len(rows) != 2 || rows[1]["words"] != "every 15 minutes" || rows[1]["overlap"] != "skip" ||
		rows[1]["missed"] != "once" || rows[1]["zone"] != "UTC" {
		t.Fatalf("%v", rows)
	}
	if row := rows[0]; row["overlap"] != "buffer" || row["missed"] != "all" || row["cap"] != 5.0 ||
		row["jitter_seconds"] != 10.0 || row["queue"] != "reports" {
		t.Errorf("%v", row)
	}
	sh.must("schedules", "pause", "nightly", "often")
	if row := sh.json("schedules", "list")[0]; row["paused"] != true {
		t.Errorf("%v", row)
	}
	sh.must("schedules", "resume", "nightly")
	id := strings.TrimSpace(sh.must("schedules", "run", "nightly", "-q"))
	if task := sh.json("tasks", "show", id)[0]; task["schedule"] != "nightly" || task["queue"] != "reports" ||
		task["kind"] != "report" {
		t.Errorf("%v", task)
	}
	if rows := sh.json("schedules", "next", "nightly", "-n", "7"); len(rows) != 7 ||
		!strings.Contains(rows[0]["local"].(string), " 02:30:00 CE") {
		t.Errorf("%v", rows)
	}
	if r := sh.run("schedules", "next", "often"); !strings.Contains(r.err, "often is paused") ||
		strings.Count(r.out, "\n") != 5 {
		t.Errorf("%s%s", r.err, r.out)
	}
	if got := sh.json("schedules", "backfill", "often", "--from", "2026-03-01T00:00:00Z", "--until",
		"2026-03-02T00:00:00Z", "--dry-run")[0]; got["ticks"] != 96.0 || got["added"] != 0.0 {
		t.Errorf("%v", got)
	}
	if got := sh.json("schedules", "backfill", "often", "--from", "2026-03-01T00:00:00Z", "--until",
		"2026-03-02T00:00:00Z")[0]; got["added"] != 96.0 || got["first"] != "2026-03-01T00:00:00.000Z" {
		t.Errorf("%v", got)
	}
	if got := sh.json("schedules", "backfill", "often", "--from", "2026-03-01T23:00:00Z", "--until",
		"2026-03-02T01:00:00Z")[0]; got["added"] != 4.0 || got["skipped"] != 4.0 {
		t.Errorf("%v", got)
	}
	sh.fails(exitUsage, "too_many", nil, "schedules", "backfill", "often", "--from", "2020-01-01T00:00:00Z")
	sh.fails(exitUsage, "out_of_range", []string{"after until"}, "schedules", "backfill", "often", "--from", "1h",
		"--until", "2h")
	sh.fails(exitUsage, "usage", nil, "schedules", "backfill", "often", "--from", "1h", "--until", "2999-01-01T00:00:00Z")
	sh.must("schedules", "add", "weekly", "@every 7d", "sync", "--start", "2030-03-02T06:30:00Z")
	if rows := sh.json("schedules", "next", "weekly", "-n", "2"); rows[0]["at"] != "2030-03-02T06:30:00.000Z" ||
		rows[1]["at"] != "2030-03-09T06:30:00.000Z" {
		t.Errorf("%v", rows)
	}
	if row := sh.json("schedules", "list")[2]; row["start"] != "2030-03-02T06:30:00.000Z" || row["next"] != row["start"] {
		t.Errorf("%v", row)
	}
	sh.fails(exitUsage, "confirmation_required", []string{"remove 3 schedules"}, "schedules", "remove", "nightly",
		"often", "weekly")
	sh.must("schedules", "remove", "nightly", "often", "weekly", "--yes")
	if rows := sh.json("schedules", "list"); len(rows) != 0 {
		t.Errorf("%v", rows)
	}
}

func TestTheSchemaGoesUpAndDown(t *testing.T) {
	sh := newShell(t)
	steps := sh.json("migrate", "up")
	if len(steps) == 0 || steps[0]["state"] != "up" || steps[0]["applied_at"] == nil {
		t.Fatalf("%v", steps)
	}
	if got := sh.json("migrate", "up"); len(got) != 0 {
		t.Errorf("up again: %v", got)
	}
	for _, step := range sh.json("migrate", "status") {
		if step["state"] != "applied" {
			t.Errorf("%v", step)
		}
	}
	if out := sh.must("migrate", "status", "--show-sql"); !strings.Contains(out, "create table") {
		t.Error(out)
	}
	if got := sh.json("migrate", "down", "--to", "0", "--dry-run", "--show-sql"); len(got) != len(steps) ||
		got[0]["state"] != "would go down" || got[0]["sql"] == "" {
		t.Errorf("%v", got)
	}
	sh.must("tasks", "list")
	sh.must("migrate", "down", "--to", "0", "--yes")
	if got := sh.json("migrate", "up", "--dry-run"); len(got) != len(steps) {
		t.Errorf("%v", got)
	}
	sh.fails(exitUsage, "schema_missing", nil, "tasks", "list")
}

func TestASchemaThatIsNotOursIsLeftAlone(t *testing.T) {
	sh := filledShell(t)
	db, err := sql.Open("sqlite", "tusk.db")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("insert into tusk_migration (version_id, is_applied) values (99, 1)"); err != nil {
		t.Fatal(err)
	}
	sh.must("tasks", "list")
	sh.must("migrate", "up") // changes nothing
	sh.fails(exitUsage, "schema_new", []string{"newer"}, "migrate", "down", "--yes")
	if _, err := db.Exec("pragma user_version = 99"); err != nil { // older programs do not work with it
		t.Fatal(err)
	}
	for _, args := range [][]string{{"tasks", "list"}, {"enqueue", "a"}, {"migrate", "up"}, {"migrate", "down", "--yes"}} {
		sh.fails(exitUsage, "schema_new", []string{"newer"}, args...)
	}
	foreign, err := sql.Open("sqlite", "foreign.db")
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	if _, err := foreign.Exec("create table tusk_task (x)"); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"tasks", "list"}, {"enqueue", "a"}, {"migrate", "up"}, {"migrate", "status"}} {
		sh.fails(exitUsage, "schema_foreign", []string{"tusk_task"}, append(args, "--db", "foreign.db")...)
	}
}
