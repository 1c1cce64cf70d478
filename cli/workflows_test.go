package cli

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store/sqlite/sqlitefile"
)

const shopFlow = `{"tasks":[
 {"name":"extract","kind":"step"},
 {"name":"left","kind":"step","after":["extract"]},
 {"name":"right","kind":"step","after":["extract"]},
 {"name":"join","kind":"step","after":["left","right"]},
 {"name":"sweep","kind":"step","last":true,"on_failure":"continue"}
]}`

func TestWorkflowsAreListedShownRetriedAndWatched(t *testing.T) {
	sh := newShell(t)
	sh.stdin = shopFlow
	id := strings.TrimSpace(sh.must("workflows", "enqueue", "-", "-q"))
	tree := sh.must("workflows", "show", id[24:]) // a part of the id is enough
	want := `extract  step  available
├─ left  step  pending
│  └─ join  step  pending  after right
├─ right  step  pending
└─ sweep  step  pending  after left, right, join
`
	if tree != want {
		t.Errorf("%s\nwant\n%s", tree, want)
	}
	if rows := sh.json("workflows", "show", id); len(rows) != 5 || rows[3]["name"] != "join" {
		t.Errorf("%v", rows)
	}
	if out := sh.must("workflows", "show", id, "--list"); strings.Count(out, "\n") != 5 ||
		!strings.Contains(out, "left,right") {
		t.Error(out)
	}
	if r := sh.run("workflows", "show", id); !strings.Contains(r.err, "0 of 5 tasks have ended, 4 pending, 1 available") {
		t.Error(r.err)
	}
	join := sh.json("workflows", "show", id)[3]["id"].(string)
	if got := sh.json("tasks", "show", join)[0]; got["needs"] != 2.0 || got["needs_ended"] != 0.0 {
		t.Errorf("%v", got)
	}
	if out := sh.must("tasks", "show", join); !strings.Contains(out, "needs\t0 of 2 tasks have ended") {
		t.Error(out)
	}
	broken := true
	steps := map[string]func(*tusk.Task[map[string]any]) error{"step": func(t *tusk.Task[map[string]any]) error {
		if t.Node == "right" && broken {
			return tusk.Discard(errors.New("no"))
		}
		return nil
	}}
	sh.workFlow(id, steps)
	flows := sh.json("workflows", "list")
	if len(flows) != 1 || flows[0]["id"] != id || flows[0]["tasks"] != 5.0 || flows[0]["ended"] != 5.0 {
		t.Errorf("%v", flows)
	}
	out := sh.must("workflows", "show", id)
	if !strings.Contains(out, "right  step  discarded") || !strings.Contains(out, "join  step  cancelled") {
		t.Error(out)
	}
	if !strings.Contains(out, "needs task right, which is discarded") ||
		!regexp.MustCompile(`extract  step  completed  \d+(\.\d)?(µs|ms|s)`).MatchString(out) {
		t.Errorf("neither the name of what failed nor how long a task took: %s", out)
	}
	if rows := sh.json("workflows", "list", "--kind", "step"); len(rows) != 1 || rows[0]["took_seconds"].(float64) <= 0 {
		t.Errorf("%v", rows)
	}
	if rows := sh.json("workflows", "list", "--kind", "other"); len(rows) != 0 {
		t.Errorf("%v", rows)
	}
	broken = false
	if got := sh.json("workflows", "retry", id, "--from", "right")[0]; got["result"] != "3 tasks" {
		t.Errorf("%v", got)
	}
	sh.workFlow(id, steps)
	if got := sh.json("workflows", "watch", id)[0]; got["ended"] != 5.0 ||
		got["states"].(map[string]any)["completed"] != 5.0 {
		t.Errorf("%v", got)
	}
	if got := sh.json("workflows", "retry", id)[0]; got["result"] != "0 tasks" {
		t.Errorf("%v", got)
	}
	sh.fails(exitNotFound, "not_found", nil, "workflows", "retry", id, "--from", "none")
	sh.fails(exitNotFound, "not_found", nil, "workflows", "show", noSuchID)
	if n := len(sh.ids("--workflow", id)); n != 5 {
		t.Errorf("%d tasks by the filter", n)
	}
}

// workFlow works until a workflow has ended.
func (sh *shell) workFlow(id string, handlers map[string]func(*tusk.Task[map[string]any]) error) {
	sh.t.Helper()
	eventually(sh.t, func() bool {
		sh.work(handlers)
		rows := sh.json("workflows", "show", id)
		for _, row := range rows {
			if s := row["state"]; s != "completed" && s != "cancelled" && s != "discarded" {
				return false
			}
		}
		return len(rows) > 0
	}, func() string { return sh.must("workflows", "show", id) })
}

func TestPipelinesAreShownStageByStage(t *testing.T) {
	sh := filledShell(t)
	if got := sh.json("pipelines", "list"); len(got) != 0 {
		t.Errorf("%v", got)
	}
	s, err := sqlitefile.Open(t.Context(), "sqlite:tusk.db")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	client, err := tusk.NewClient(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	mux := tusk.NewMux()
	p := tusk.NewPipeline("ingest").Stage("fetch", nil).Stage("parse", nil)
	tusk.HandleStage(mux, p, "fetch", func(_ context.Context, t *tusk.Task[int]) (int, error) { return t.Args, nil })
	tusk.HandleStage(mux, p, "parse", func(_ context.Context, t *tusk.Task[int]) (int, error) { return t.Args, nil })
	worker, err := tusk.NewWorker(client, mux, &tusk.WorkerConfig{Queues: p.Queues()})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if _, err := client.Enqueue(t.Context(), p.Start(i), nil); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	eventually(t, func() bool {
		rows := sh.json("pipelines", "list")
		return len(rows) == 1 && len(sh.ids("--state", "completed")) == 6
	}, func() string { return sh.must("tasks", "list") })
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if row := sh.json("pipelines", "list")[0]; row["name"] != "ingest" || len(row["stages"].([]any)) != 2 ||
		row["unfinished"] != 0.0 {
		t.Errorf("%v", row)
	}
	rows := sh.json("pipelines", "show", "ingest")
	if len(rows) != 2 || rows[0]["stage"] != "fetch" || rows[1]["completed"] != 3.0 || rows[1]["stuck"] != "" {
		t.Errorf("%v", rows)
	}
	sh.must("queues", "pause", "ingest.fetch")
	sh.enqueue("ingest.fetch", "1", "--queue", "ingest.fetch")
	if row := sh.json("pipelines", "show", "ingest")[0]; row["stuck"] != "its queue is paused" || row["available"] != 1.0 {
		t.Errorf("%v", row)
	}
	if row := sh.json("pipelines", "list")[0]; len(row["stuck"].([]any)) != 1 {
		t.Errorf("%v", row)
	}
	sh.fails(exitNotFound, "not_found", nil, "pipelines", "show", "none")
	sh.must("pipelines", "remove", "ingest")
}

func TestPipelinesAreDefinedAndStarted(t *testing.T) {
	sh := newShell(t)
	sh.stdin = `{"stages":[{"name":"fetch"},{"name":"parse","max_attempts":3}]}`
	if got := sh.json("pipelines", "define", "ingest", "-", "--dry-run")[0]; got["name"] != "ingest" ||
		got["dry_run"] != true || len(got["stages"].([]any)) != 2 || got["queues"].([]any)[1] != "ingest.parse" {
		t.Errorf("%v", got)
	}
	sh.stdin = `{"tasks":[{"name":"a","kind":"x"},{"name":"b","kind":"y","after":["a"],"queue":"q"}]}`
	if got := sh.json("workflows", "enqueue", "-", "--dry-run"); len(got) != 2 || got[1]["name"] != "b" ||
		got[1]["kind"] != "y" || got[1]["queue"] != "q" || got[1]["after"].([]any)[0] != "a" || got[1]["dry_run"] != true {
		t.Errorf("%v", got)
	}
	sh.stdin = `{"stages":[{"name":"fetch"},{"name":"parse","max_attempts":3}]}`
	sh.must("migrate", "up")
	sh.fails(exitNotFound, "not_found", nil, "pipelines", "start", "ingest")
	sh.must("pipelines", "define", "ingest", "-")
	if row := sh.json("pipelines", "list")[0]; row["name"] != "ingest" || len(row["stages"].([]any)) != 2 {
		t.Errorf("%v", row)
	}
	id := sh.json("pipelines", "start", "ingest", `{"n":7}`, "--tags", "a")[0]["id"].(string)
	sh.fails(exitUsage, "unknown_stage", nil, "pipelines", "start", "ingest", "--at", "store")
	sh.must("work", "--queue", "ingest.fetch", "--queue", "ingest.parse", "--until-empty",
		"--exec", `ingest.fetch=sh -c 'cat >/dev/null; echo 8'`, "--exec", "ingest.parse=cat")
	if text := sh.must("workflows", "show", id); strings.Count(text, "completed") < 2 ||
		!strings.Contains(text, "ingest.parse") {
		t.Error(text)
	}
	sh.stdin = `{"stages":[{"name":"fetch","timeout":"soon"}]}`
	sh.fails(exitUsage, "invalid_duration", nil, "pipelines", "define", "ingest", "-")

	// Errors are reported like those in a line of enqueue --from.
	for text, says := range map[string][]string{
		`{"stages":[{"name":"a","timeut":"1s"}]}`:            {"unknown_field", "stages[0]", "did you mean timeout?"},
		`{"stages":[{"name":"a"},{"name":"b","backoff":3}]}`: {"invalid_value", "stages[1].backoff: is 3: want"},
		`{"stages":[{"name":"a","max_attempts":"3"}]}`:       {"invalid_value", `max_attempts: is "3": want a whole`},
		`{"stages":[{"name":"a"}`:                            {"invalid_json", "ends at byte 23, too early"},
	} {
		sh.stdin = text
		sh.fails(exitUsage, says[0], says[1:], "pipelines", "define", "ingest", "-")
	}
	sh.stdin = `{"stages":[{"name":"fetch","backoff":"exponential:1s:1h"}]}`
	sh.must("pipelines", "define", "short", "-")
	sh.stdin = `{"tasks":[{"name":"a","kind":"k","aftr":["b"]}]}`
	sh.fails(exitUsage, "unknown_field", []string{"tasks[0]", "did you mean after?"}, "workflows", "enqueue", "-")
	sh.stdin = `{"tasks":[{"name":"a","kind":"k","backoff":"constant:9s"}]}`
	var run struct{ Tasks map[string]string }
	if err := json.Unmarshal([]byte(sh.must("workflows", "enqueue", "-", "--json")), &run); err != nil {
		t.Fatal(err)
	}
	if out := sh.must("tasks", "show", run.Tasks["a"], "--json"); !strings.Contains(out, "constant:9s") {
		t.Error(out)
	}
}

func TestTenantsAreListedAndSet(t *testing.T) {
	sh := newShell(t)
	for range 3 {
		sh.enqueue("a", "--queue", "reports", "--tenant", "acme")
	}
	sh.enqueue("a", "--tenant", "other", "--delay", "1h")
	sh.must("tenants", "set", "acme", "--queue", "reports", "--concurrency", "5", "--weight", "2.5")
	sh.must("tenants", "set", "idle", "--queue", "mail", "--weight", "3", "--create")
	rows := sh.json("tenants", "list")
	if len(rows) != 3 || rows[0]["name"] != "acme" || rows[0]["unfinished"] != 3.0 || rows[0]["available"] != 3.0 ||
		rows[1]["unfinished"] != 0.0 || rows[2]["name"] != "other" {
		t.Fatalf("%v", rows)
	}
	if out := sh.must("tenants", "list"); !strings.Contains(out, "reports=5:2.5") || !strings.Contains(out, "mail=0:3") {
		t.Error(out)
	}
	if l := sh.json("limits", "list"); len(l) != 2 {
		t.Errorf("%v", l)
	}
	if r := sh.run("tenants", "list", "--look", "2"); !strings.Contains(r.err, "newest 2 unfinished tasks") {
		t.Error(r.err)
	}
	sh.must("tenants", "reset", "acme", "--queue", "reports")
	if out := sh.must("tenants", "list"); strings.Contains(out, "reports=5") {
		t.Error(out)
	}
	sh.fails(exitUsage, "usage", nil, "tenants", "set", "acme", "--queue", "reports")
	sh.fails(exitNotFound, "unknown_queue", []string{"did you mean reports?", "--create"}, "tenants", "set", "acme",
		"--queue", "report", "--weight", "1")
	sh.must("tenants", "set", "acme", "--queue", "meant", "--weight", "1", "--create")
	sh.fails(exitUsage, "invalid_name", nil, "tenants", "set", "No", "--queue", "reports", "--weight", "1")
	sh.fails(exitNotFound, "not_found", nil, "tenants", "reset", "acme", "--queue", "none")
}

func TestAFileThatIsReadAsAWholeHasALimit(t *testing.T) {
	sh := newShell(t)
	file := filepath.Join(t.TempDir(), "w.json")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, 64<<20+1)); err != nil {
		t.Fatal(err)
	}
	sh.fails(exitUsage, "usage", []string{"64 MiB", "divide it"}, "workflows", "enqueue", file)
}
