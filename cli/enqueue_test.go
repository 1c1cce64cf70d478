package cli

import (
	"fmt"
	"strings"
	"testing"
)

func TestEnqueueStoresWhatItsFlagsSay(t *testing.T) {
	sh := newShell(t)
	id := strings.TrimSpace(sh.must("enqueue", "send_email", `{"n": 1.10, "to":"a"}`, "-q", "--queue", "mail",
		"--priority", "-5", "--delay", "1h", "--key", "k", "--on-conflict", "rerun", "--source-time", "2026-01-01T00:00:00Z",
		"--max-attempts", "3", "--timeout", "90s", "--backoff", "exponential:2s:1m:0.5", "--tags", "a,b", "--metadata",
		"x=1,y=2", "--tenant", "acme", "--expires-in", "2d"))
	got := sh.json("tasks", "show", id)[0]
	for field, want := range map[string]any{
		"state": "scheduled", "queue": "mail", "kind": "send_email", "priority": -5.0, "key": "k", "max_attempts": 3.0,
		"timeout_seconds": 90.0,
		"backoff":         "exponential:2s:1m:0.5", "tags": "[a b]", "metadata": "map[x:1 y:2]", "tenant": "acme",
		"attempts": "[]", "logs": "[]", "output": nil,
	} {
		if fmt.Sprint(got[field]) != fmt.Sprint(want) {
			t.Errorf("%s is %v, want %v", field, got[field], want)
		}
	}
	if out := sh.must("tasks", "show", id, "--json"); !strings.Contains(out, `"args":{"n":1.10,"to":"a"}`) {
		t.Errorf("args were not kept: %s", out)
	}
	for _, at := range []string{"run_at", "enqueued_at", "expires_at"} {
		if text, _ := got[at].(string); !strings.HasSuffix(text, "Z") || len(text) != 24 {
			t.Errorf("%s is %v, want RFC 3339 in UTC", at, got[at])
		}
	}
	if got := sh.json("enqueue", "send_email", "--queue", "mail", "--key", "k", "--tenant",
		"acme")[0]; got["result"] != "skipped" || got["id"] != id {
		t.Errorf("%v", got)
	}
	if got := sh.json("enqueue", "send_email", "--queue", "mail", "--key", "k")[0]; got["result"] != "added" {
		t.Errorf("the key of another tenant: %v", got)
	}
}

func TestArgsComeFromStdin(t *testing.T) {
	sh := newShell(t)
	sh.stdin = ` {"x":1}` + "\n"
	id := strings.TrimSpace(sh.must("enqueue", "a", "-", "-q"))
	if got := sh.must("tasks", "show", id, "--json"); !strings.Contains(got, `"args":{"x":1}`) {
		t.Error(got)
	}
}

func TestAFileIsEnqueuedInBatches(t *testing.T) {
	sh := newShell(t)
	var lines strings.Builder
	lines.WriteString("\xef\xbb\xbf")
	for i := range 2500 {
		fmt.Fprintf(&lines, `{"kind":"a","key":"k%d","args":{"i":%d}}`+"\n\n", i%2400, i)
	}
	sh.write("tasks.jsonl", lines.String(), 0o644)
	got := sh.json("enqueue", "--from", "tasks.jsonl")[0]
	if got["added"] != 2400.0 || got["skipped"] != 100.0 || got["tasks"] != 2500.0 {
		t.Errorf("%v", got)
	}
	sh.stdin = `{"kind":"b","queue":"other","priority":3,"run_at":"2030-01-01T00:00:00Z",` +
		`"expires_at":"2031-01-01T00:00:00Z","max_attempts":2,"timeout":"5s","backoff":"linear:5m","tags":["x"],` +
		`"metadata":{"a":"b"},"tenant":"acme","key":"q","on_conflict":"rerun","source_time":"2026-01-01T00:00:00+01:00"}`
	sh.must("enqueue", "--from", "-")
	if got := sh.json("tasks", "list", "--queue", "other")[0]; got["run_at"] != "2030-01-01T00:00:00.000Z" ||
		got["backoff"] != "linear:5m" || got["tenant"] != "acme" {
		t.Errorf("%v", got)
	}
}

func TestOfABatchWithABadLineNothingIsStored(t *testing.T) {
	sh := newShell(t)
	var lines strings.Builder
	for i := 1; i <= 2500; i++ {
		switch i {
		case 1500:
			lines.WriteString(`{"kind":"a","quue":"x"}` + "\n")
		case 1600:
			lines.WriteString(`{"kind":"Not A Name"}` + "\n")
		default:
			lines.WriteString(`{"kind":"a"}` + "\n")
		}
	}
	sh.write("tasks.jsonl", lines.String(), 0o644)
	r := sh.run("enqueue", "--from", "tasks.jsonl", "--json")
	for _, want := range []string{"line 1500: unknown field \"quue\"; did you mean queue?", "line 1600: kind: ",
		"stored 1000 tasks; nothing from line 1001 on: 2 bad lines"} {
		if !strings.Contains(r.err, want) {
			t.Errorf("%s\nwant %q in it", r.err, want)
		}
	}
	if r.status != exitUsage || !strings.Contains(r.out, `"added":1000,`) ||
		!strings.Contains(r.out, `"tasks":1999,"bad_lines":2,`) {
		t.Errorf("status %d, %s", r.status, r.out)
	}
	if got := sh.json("queues", "list")[0]["available"]; got != 1000.0 {
		t.Errorf("%v tasks are stored", got)
	}
	if got := sh.json("enqueue", "a", `{"n":1}`, "--dry-run", "--delay", "48h", "--tags", "x,y")[0]; got["kind"] != "a" ||
		got["queue"] != "default" || got["delay"] != "2d" || got["dry_run"] != true || len(got["tags"].([]any)) != 2 ||
		got["args"].(map[string]any)["n"] != 1.0 {
		t.Errorf("%v", got)
	}
	r = sh.run("enqueue", "--from", "tasks.jsonl", "--dry-run")
	if r.status != exitUsage || !strings.Contains(r.err, "line 1500:") || !strings.Contains(r.err, "line 1600:") {
		t.Errorf("dry run: status %d, %s", r.status, r.err)
	}
	if got := sh.json("queues", "list")[0]["available"]; got != 1000.0 {
		t.Errorf("%v tasks are stored after a dry run", got)
	}
}

// A mistake right after a full batch must not lead to advice that stores the batch again.
func TestTheAdviceAfterAFullBatchStoresNothingTwice(t *testing.T) {
	sh := newShell(t)
	sh.write("tasks.jsonl", "\n"+strings.Repeat(`{"kind":"a"}`+"\n", bulkBatch)+strings.Repeat("x", longestLine+1), 0o644)
	r := sh.run("enqueue", "--from", "tasks.jsonl")
	for _, want := range []string{"line 1002: is longer than", "stored 1000 tasks; nothing from line 1002 on",
		"tail -n +1002 "} {
		if r.status != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%s\nwant %q in it", r.err, want)
		}
	}
}

func TestEveryMistakeOfALineIsNamed(t *testing.T) {
	for text, want := range map[string]string{
		`nope`:                              "not JSON",
		`{"kind":"a"`:                       "too early",
		`{"kind":"a"} x`:                    "something follows",
		`{"kind":"a"}{"kind":"b"}`:          "something follows",
		`["a"]`:                             "want an object",
		`"a"`:                               "want an object",
		`{}`:                                "kind is missing",
		`{"kind":null}`:                     "kind: is null",
		`{"kind":7}`:                        "kind: want a string",
		`{"kind":"a","kind":"b"}`:           "kind comes twice",
		`{"kind":"a","Queue":"b"}`:          "did you mean queue?",
		`{"kind":"a","priority":"1"}`:       "priority: want a whole number",
		`{"kind":"a","priority":1.5}`:       "priority: want a whole number",
		`{"kind":"a","priority":40000}`:     "priority: want a whole number",
		`{"kind":"a","max_attempts":0}`:     "max_attempts: want a whole number from 1",
		`{"kind":"a","max_attempts":1e400}`: "max_attempts: want a whole number",
		`{"kind":"a","delay":true}`:         "delay: want a duration such as 90s, 1h30m or 7d, or a number of seconds",
		`{"kind":"a","delay":-60}`:          "delay: is negative",
		`{"kind":"a","run_at":"2999-01-01T00:00:00Z"}`:  "line 2: run_at: is",
		`{"kind":"a","max_attempts":1,"delay":"4000d"}`: "line 2: delay: is",
		`{"kind":"a","delay":"1 month"}`:                "delay: want a duration",
		`{"kind":"a","run_at":"2026-01-01"}`:            "run_at: has no time zone",
		`{"kind":"a","backoff":"x"}`:                    "backoff: want constant",
		`{"kind":"a","tags":"a,b"}`:                     "tags: want a list of strings",
		`{"kind":"a","metadata":{"a":1}}`:               "metadata: want an object of strings",
		`{"kind":"a","on_conflict":"rerun"}`:            "on_conflict: is for tasks with a key",
		`{"kind":"a","args":"\u0000"}`:                  "args: ",
		"{\"kind\":\"a\",\"args\":\"\xff\"}":            "args: ",
		`{"kind":"a","timeout":"` + "-1s" + `"}`:        "timeout: is negative",
	} {
		sh := newShell(t)
		sh.stdin = "\n" + text + "\n"
		r := sh.run("enqueue", "--from", "-", "--dry-run")
		if r.status != exitUsage || !strings.Contains(r.err, "line 2: ") || !strings.Contains(r.err, want) {
			t.Errorf("%s: status %d, %s want %q in it", text, r.status, r.err, want)
		}
	}
}

func TestDurationsAreNumbersOfSecondsAsWell(t *testing.T) {
	sh := newShell(t)
	sh.stdin = `{"kind":"a","timeout":90,"stall_timeout":1.5e1,"delay":3600}`
	sh.must("enqueue", "--from", "-")
	sh.must("enqueue", "b", "--timeout", "90", "--stall-timeout", "15", "--delay", "3600")
	tasks := sh.json("tasks", "list")
	for _, task := range tasks {
		if task["timeout_seconds"] != 90.0 || task["stall_timeout_seconds"] != 15.0 || task["state"] != "scheduled" {
			t.Errorf("%v", task)
		}
	}
	if len(tasks) != 2 {
		t.Errorf("%d tasks", len(tasks))
	}
	sh.fails(exitUsage, "usage", []string{"or a number of seconds"}, "enqueue", "b", "--delay", "soon")
	sh.fails(exitUsage, "usage", nil, "tasks", "list", "--since", "2026")
}

func TestOnlyTheFirstBadLinesAreToldOneByOne(t *testing.T) {
	sh := newShell(t)
	sh.stdin = strings.Repeat("nope\n", 500)
	r := sh.run("enqueue", "--from", "-")
	if strings.Count(r.err, "\n") != mostBad+2 || !strings.Contains(r.err, "and 480 more") {
		t.Error(r.err)
	}
}

func TestTheZeroTimeIsRefused(t *testing.T) {
	sh := filledShell(t)
	id := strings.TrimSpace(sh.must("enqueue", "a", "-q", "--delay", "1h"))
	for _, at := range []string{"0001-01-01T00:00:00Z", "0001-01-01T01:00:00+01:00", "1970-01-01T00:00:00Z"} {
		for _, flag := range []string{"--run-at", "--expires-at", "--deadline"} {
			sh.fails(exitUsage, "invalid_time", []string{"never set"}, "enqueue", "a", flag, at)
		}
		sh.fails(exitUsage, "invalid_time", nil, "enqueue", "a", "--key", "k", "--on-conflict", "rerun", "--source-time", at)
		sh.fails(exitUsage, "invalid_time", nil, "schedules", "add", "s", "@every 7d", "a", "--start", at)
		sh.fails(exitUsage, "invalid_time", nil, "tasks", "retry", id, "--at", at)
		sh.stdin = `{"kind":"a","run_at":"` + at + `"}`
		sh.fails(exitUsage, "invalid_lines", nil, "enqueue", "--from", "-")
	}
}

func TestABackoffWhoseMaxIsBelowItsBaseIsRefused(t *testing.T) {
	sh := filledShell(t)
	sh.fails(exitUsage, "usage", []string{"base 1h above its max 1s"}, "enqueue", "a", "--backoff", "exponential:1h:1s")
	sh.stdin = `{"kind":"a","backoff":"exponential:1h:1s"}`
	sh.fails(exitUsage, "invalid_lines", nil, "enqueue", "--from", "-")
	sh.must("enqueue", "a", "--backoff", "exponential:2d")
}
