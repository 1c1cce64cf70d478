package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store/sqlite/sqlitefile"
)

func (sh *shell) enqueue(args ...string) string {
	sh.t.Helper()
	return strings.TrimSpace(sh.must(append([]string{"enqueue", "-q"}, args...)...))
}

// ids lists the ids of tasks, oldest first.
func (sh *shell) ids(args ...string) []string {
	sh.t.Helper()
	found := strings.Fields(sh.must(append([]string{"tasks", "list", "-q"}, args...)...))
	slices.Reverse(found)
	return found
}

func TestFiltersChooseTasks(t *testing.T) {
	sh := newShell(t)
	a := sh.enqueue("a", "--queue", "one", "--tags", "x,y", "--tenant", "acme")
	b := sh.enqueue("b", "--queue", "two", "--tags", "y", "--key", "k")
	c := sh.enqueue("a", "--queue", "two", "--delay", "1h")
	for _, test := range []struct {
		want []string
		args []string
	}{
		{[]string{a, b, c}, nil},
		{[]string{a}, []string{"--queue", "one"}},
		{[]string{a, b, c}, []string{"--queue", "one,two"}},
		{[]string{a, b, c}, []string{"--queue", "one", "--queue", "two"}},
		{[]string{a, c}, []string{"--kind", "a"}},
		{[]string{c}, []string{"--kind", "a", "--queue", "two"}},
		{[]string{a, b}, []string{"--tag", "y"}},
		{[]string{a}, []string{"--tag", "x,y"}},
		{[]string{a}, []string{"--tenant", "acme"}},
		{[]string{b}, []string{"--key", "k"}},
		{[]string{c}, []string{"--state", "scheduled"}},
		{[]string{a, b}, []string{"--state", "available,running"}},
		{[]string{c}, []string{"--limit", "1"}},
		{[]string{a, b, c}, []string{"--all"}},
		{[]string{a, b, c}, []string{"--since", "1h"}},
		{nil, []string{"--until", "1h"}},
		{nil, []string{"--since", "2100-01-01T00:00:00Z"}},
		{nil, []string{"--fingerprint", "none"}},
	} {
		if got := sh.ids(test.args...); !slices.Equal(got, test.want) {
			t.Errorf("%q: %q, want %q", test.args, got, test.want)
		}
	}
}

func TestNamedTasksAreChangedOneByOne(t *testing.T) {
	sh := newShell(t)
	a, b := sh.enqueue("a"), sh.enqueue("a", "--delay", "1h")
	rows := sh.json("tasks", "cancel", a, b, a, "--reason", "not needed")
	if len(rows) != 2 || rows[0]["result"] != "changed" || rows[1]["state"] != "cancelled" {
		t.Errorf("%v", rows)
	}
	if got := sh.json("tasks", "show", a)[0]; got["state"] != "cancelled" || got["reason"] != "not needed" {
		t.Errorf("%v", got)
	}
	sh.fails(exitConflict, "refused", nil, "tasks", "cancel", a)
	sh.fails(exitConflict, "refused", nil, "tasks", "reprioritize", a, "--priority", "1")
	sh.fails(exitNotFound, "not_found", nil, "tasks", "retry", b, noSuchID)
	if got := sh.json("tasks", "show", b)[0]; got["state"] != "available" {
		t.Errorf("the task beside a missing one: %v", got["state"])
	}
	sh.fails(exitNotFound, "unknown_queue", nil, "tasks", "move", b, "--to", "other")
	sh.must("tasks", "move", b, "--to", "other", "--create")
	sh.must("tasks", "reprioritize", b, "--priority", "-7")
	sh.must("tasks", "reschedule", b, "--in", "1h")
	if got := sh.json("tasks", "show", b)[0]; got["queue"] != "other" || got["priority"] != -7.0 ||
		got["state"] != "scheduled" {
		t.Errorf("%v", got)
	} else if changed, _ := got["changed"].(map[string]any); changed["how"] != "rescheduled" || changed["at"] == nil {
		t.Errorf("changed: %v", got["changed"])
	}
	if got := sh.must("tasks", "show", b); !strings.Contains(got, "\nchanged\trescheduled 20") {
		t.Errorf("%q", got)
	}
	if got := sh.json("tasks", "delete", a, "--dry-run")[0]; got["matched"] != 1.0 || got["changed"] != 0.0 {
		t.Errorf("%v", got)
	}
	sh.must("tasks", "delete", a, "--yes")
	sh.fails(exitNotFound, "not_found", nil, "tasks", "show", a)
}

func TestARetryIsRefusedWhileAnotherTaskHasTheKey(t *testing.T) {
	sh := newShell(t)
	a := sh.enqueue("a", "--key", "k")
	sh.must("tasks", "cancel", a)
	sh.enqueue("a", "--key", "k")
	sh.fails(exitConflict, "key_taken", []string{"--key"}, "tasks", "retry", a)
}

func TestMatchingTasksAreCountedThenChangedPageByPage(t *testing.T) {
	sh := newShell(t)
	sh.stdin = strings.Repeat(`{"kind":"a","queue":"many"}`+"\n", 2500)
	sh.must("enqueue", "--from", "-")
	sh.enqueue("a", "--queue", "few")
	r := sh.run("tasks", "cancel", "--queue", "many")
	if r.status != exitUsage || !strings.Contains(r.err, "2500 tasks") || !strings.Contains(r.err, "--yes") {
		t.Errorf("status %d: %s", r.status, r.err)
	}
	if got := sh.json("tasks", "cancel", "--queue", "many", "--dry-run")[0]; got["matched"] != 2500.0 ||
		got["changed"] != 0.0 {
		t.Errorf("%v", got)
	}
	if got := sh.json("tasks", "reprioritize", "--queue", "many", "--limit", "1500", "--priority",
		"5")[0]; got["changed"] != 1500.0 {
		t.Errorf("%v", got)
	}
	if got := sh.json("tasks", "cancel", "--queue", "many", "--yes")[0]; got["changed"] != 2500.0 ||
		got["matched"] != 2500.0 {
		t.Errorf("%v", got)
	}
	if got := sh.json("tasks", "cancel", "--queue", "many", "--yes")[0]; got["matched"] != 0.0 {
		t.Errorf("cancelled ones match again: %v", got)
	}
	if got := sh.json("tasks", "delete", "--all", "--state", "cancelled", "--yes")[0]; got["changed"] != 2500.0 {
		t.Errorf("%v", got)
	}
	if got := len(sh.ids("--all")); got != 1 {
		t.Errorf("%d tasks are left", got)
	}
}

func TestOnATerminalOneIsAsked(t *testing.T) {
	sh := newShell(t)
	id := sh.enqueue("a")
	sh.setup = func(app *App) { app.asked = true }
	sh.stdin = "n\n"
	if r := sh.run("tasks", "delete", id); r.status != exitConflict ||
		r.err != "delete 1 task? [y/N] error[declined]: nothing was changed\n" {
		t.Errorf("status %d, %s", r.status, r.err)
	}
	sh.stdin = ""
	sh.fails(exitConflict, "declined", nil, "tasks", "delete", id)
	sh.stdin = "y\n"
	sh.must("tasks", "delete", id)
}

// work runs tasks until none is left that can run.
func (sh *shell) work(handlers map[string]func(*tusk.Task[map[string]any]) error, queues ...string) {
	sh.t.Helper()
	s, err := sqlitefile.Open(sh.t.Context(), "sqlite:tusk.db")
	if err != nil {
		sh.t.Fatal(err)
	}
	defer s.Close()
	client, err := tusk.NewClient(s, nil)
	if err != nil {
		sh.t.Fatal(err)
	}
	mux := tusk.NewMux()
	for kind, handle := range handlers {
		tusk.HandleKind(mux, kind, func(_ context.Context, t *tusk.Task[map[string]any]) error { return handle(t) })
	}
	worker, err := tusk.NewWorker(client, mux, &tusk.WorkerConfig{Queues: queues, Poll: 5 * time.Millisecond})
	if err != nil {
		sh.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(sh.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		left, err := client.List(ctx, tusk.Filter{States: []tusk.State{tusk.StateAvailable, tusk.StateRunning}})
		if err == nil && len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			sh.t.Error("tasks are left after 30 s")
			break
		}
	}
	stop()
	if err := <-ended; err != nil {
		sh.t.Fatal(err)
	}
}

func TestFailuresAreGroupedAndAGroupIsRetried(t *testing.T) {
	sh := newShell(t)
	for i := range 3 {
		sh.enqueue("mail", fmt.Sprintf(`{"to":%d}`, i), "--max-attempts", "1")
	}
	sh.enqueue("bill", "--backoff", "constant:1h")
	fine := sh.enqueue("fine")
	sh.work(map[string]func(*tusk.Task[map[string]any]) error{
		"mail": func(t *tusk.Task[map[string]any]) error { return fmt.Errorf("mailbox %v is full\x1b[2J", t.Args["to"]) },
		"bill": func(*tusk.Task[map[string]any]) error { panic(errors.New("no money")) },
		"fine": func(t *tusk.Task[map[string]any]) error {
			t.Logger().Info("going", "step", 1)
			t.SetProgress(50, "half")
			return t.RecordOutput(map[string]int{"sum": 7})
		},
	})
	groups := sh.json("errors", "--kind", "mail")
	if len(groups) != 1 || groups[0]["count"] != 3.0 || groups[0]["dead"] != 3.0 {
		t.Fatalf("%v", groups)
	}
	const cut = "the latest 1 group: there are older ones"
	if said := sh.run("errors", "--limit", "1").err; !strings.Contains(said, cut) {
		t.Errorf("%q", said)
	}
	if said := sh.run("errors", "--limit", "2").err; strings.Contains(said, "older") {
		t.Errorf("%q", said)
	}
	print := groups[0]["fingerprint"].(string)
	if out := sh.must("errors", "show", print); !strings.Contains(out, "is full") || strings.Contains(out, "\x1b") {
		t.Errorf("%q", out)
	}
	if got := len(sh.ids("--fingerprint", print)); got != 3 {
		t.Errorf("%d tasks have the fingerprint", got)
	}
	if got := sh.json("errors", "retry", print, "--dry-run")[0]; got["matched"] != 3.0 || got["changed"] != 0.0 {
		t.Errorf("%v", got)
	}
	if got := sh.json("errors", "retry", print, "--in", "1h")[0]; got["changed"] != 3.0 {
		t.Errorf("%v", got)
	}
	if got := len(sh.ids("--state", "scheduled")); got != 3 {
		t.Errorf("%d tasks are scheduled", got)
	}
	if got := sh.json("tasks", "retry", "--queue", "default")[0]; got["changed"] != 1.0 {
		t.Errorf("by filter those that failed are retried: %v", got)
	}

	shown := sh.json("tasks", "show", fine)[0]
	if fmt.Sprint(shown["output"]) != "map[sum:7]" || len(shown["logs"].([]any)) != 1 ||
		len(shown["attempts"].([]any)) != 1 {
		t.Errorf("%v", shown)
	}
	text := sh.must("tasks", "show", sh.ids("--kind", "bill")[0])
	for _, want := range []string{"attempts", "no money", "trace of attempt 1", "tasks_test.go"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if text := sh.must("tasks", "show", fine); !strings.Contains(text, `output	{"sum":7}`) ||
		!strings.Contains(text, "going step=1") {
		t.Error(text)
	}

	counts := map[string][2]float64{}
	for _, row := range sh.json("stats", "--by", "day") {
		counts[row["kind"].(string)] = [2]float64{row["count"].(float64), row["failed"].(float64)}
		if row["run_p99_seconds"].(float64) < 0 || row["wait_mean_seconds"].(float64) <= 0 {
			t.Errorf("%v", row)
		}
		total, mean := row["wait_total_seconds"].(float64), row["wait_mean_seconds"].(float64)*row["count"].(float64)
		if total <= 0 || total < mean-0.01 || total > mean+0.01 {
			t.Errorf("a total wait of %v, by mean and count %v", total, mean)
		}
	}
	if fmt.Sprint(counts) != "map[bill:[1 1] fine:[1 0] mail:[3 3]]" {
		t.Errorf("%v", counts)
	}
	var attempts float64
	for _, row := range sh.json("stats") {
		attempts += row["count"].(float64)
	}
	var total float64
	for _, row := range sh.json("stats", "--by", "total") {
		total += row["count"].(float64)
	}
	if r := sh.run("stats", "--by", "total"); total != attempts ||
		!strings.Contains(r.err, fmt.Sprintf("in all %.0f attempts: ", attempts)) {
		t.Errorf("%v of %v attempts; %q", total, attempts, r.err)
	}
	if got := sh.json("stats", "--by", "minute", "--kind", "fine", "--since", "1h"); len(got) != 1 {
		t.Errorf("%v", got)
	}
}

func TestQueuesArePausedAndResumed(t *testing.T) {
	sh := newShell(t)
	sh.enqueue("a", "--queue", "mail")
	sh.fails(exitNotFound, "unknown_queue", []string{"maill", "did you mean mail?", "--create"}, "queues", "pause",
		"mail", "maill")
	if got := sh.must("queues", "list"); !strings.HasPrefix(got, "mail\tno\t1\t") || strings.Contains(got, "maill") {
		t.Error(got)
	}
	sh.must("queues", "pause", "--create", "mail", "other")
	if got := sh.must("queues", "list"); !strings.HasPrefix(got, "mail\tyes\t1\t") ||
		!strings.Contains(got, "other\tyes\t0") {
		t.Error(got)
	}
	sh.fails(exitNotFound, "unknown_queue", []string{"did you mean mail?"}, "queues", "resume", "other", "maill")
	if got := sh.must("queues", "list"); strings.Contains(got, "maill") || !strings.Contains(got, "other\tyes\t0") {
		t.Error(got)
	}
	sh.fails(exitUsage, "usage", []string{"want a duration with its unit"}, "queues", "keep", "mail", "--discarded", "30")
	sh.must("queues", "resume", "mail")
	if got := sh.json("queues", "list")[0]; got["paused"] != false || got["available"] != 1.0 {
		t.Errorf("%v", got)
	}
	if got := sh.json("workers", "list"); len(got) != 0 {
		t.Errorf("%v", got)
	}
}
