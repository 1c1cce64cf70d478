package cli

import (
	"strings"
	"testing"
)

func TestWhyNamesTheReasonAndTheCommand(t *testing.T) {
	sh := newShell(t)
	id := sh.enqueue("a")
	sh.must("queues", "pause", "default")
	out := sh.must("tasks", "why", id)
	first, rest, _ := strings.Cut(out, "\n")
	if !strings.HasPrefix(first, "paused\t") || !strings.HasSuffix(first, "\ttusk queues resume default") ||
		!strings.HasPrefix(rest, "no_worker\t") {
		t.Errorf("%q", out)
	}
	told := sh.json("tasks", "why", id)[0]
	if told["state"] != "available" || told["reasons"].([]any)[0].(map[string]any)["code"] != "paused" {
		t.Errorf("%v", told)
	}
	sh.fails(exitNotFound, "not_found", nil, "tasks", "why", noSuchID)
	sh.fails(exitUsage, "invalid_id", nil, "tasks", "why", "x")
}

func TestWhyNamesTheReasonOfAScheduleAndTheCommand(t *testing.T) {
	sh := filledShell(t)
	sh.must("schedules", "add", "often", "@every 15m", "sync")
	sh.must("schedules", "pause", "often")
	out := sh.must("schedules", "why", "often")
	first, rest, _ := strings.Cut(out, "\n")
	if !strings.HasPrefix(first, "schedule_paused\t") || !strings.HasSuffix(first, "\ttusk schedules resume often") ||
		!strings.HasPrefix(rest, "no_leader\t") {
		t.Errorf("%q", out)
	}
	told := sh.json("schedules", "why", "often")[0]
	if told["name"] != "often" || told["reasons"].([]any)[0].(map[string]any)["code"] != "schedule_paused" {
		t.Errorf("%v", told)
	}
	sh.fails(exitNotFound, "not_found", nil, "schedules", "why", "none")
	sh.fails(exitUsage, "invalid_name", nil, "schedules", "why", "no name")
}
