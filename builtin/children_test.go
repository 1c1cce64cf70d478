//go:build unix

package builtin_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/builtin"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// anyDefault lets a command spawn children into the default queue.
var anyDefault = &builtin.CommandOptions{ChildQueues: []string{tusk.DefaultQueue}}

// A workflow whose tasks are all run by shell scripts: a parent that splits its work, and sums it up.
func TestACommandWaitsForItsChildren(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	const sum = `
if test -z "$TUSK_INPUTS"; then
	for n in 1 2 3; do
		echo '{"kind":"square","args":'$n',"tags":["part"],"timeout":"1m","max_attempts":1}' >> "$TUSK_CHILDREN"
	done
	echo '{"wait": true}' >> "$TUSK_CHILDREN"
	exit
fi
total=0
for n in $(sed -n 's/.*"output":\([0-9]*\).*/\1/p' "$TUSK_INPUTS"); do total=$((total + n)); done
echo $total
grep -c '"state":"discarded"' "$TUSK_INPUTS" >&2
echo '{"kind":"tell"}' >> "$TUSK_CHILDREN"
`
	w := work(t, func(m *tusk.Mux) {
		builtin.Command(m, "sum", []string{"sh", "-c", sum}, anyDefault)
		builtin.Command(m, "square", []string{"sh", "-c", `read n; test $n != 2 || exit 1; echo $((n * n))`}, nil)
		builtin.Command(m, "tell", []string{"true"}, nil)
	})
	id := w.enqueue("sum", `{}`, &tusk.Options{MaxAttempts: 1, Tenant: "acme"})
	task := w.await(id, func(t *tusk.TaskInfo) bool { return t.State.Finished() })
	if task.State != tusk.StateCompleted || string(task.Detail.Output) != "10" || task.Attempt != 1 ||
		len(task.Detail.Logs) != 1 || task.Detail.Logs[0].Text != "1" {
		t.Fatalf("%v, %s: %s, logs %v", task.State, task.Detail.Output, lastError(task), task.Detail.Logs)
	}
	flow, err := w.client.Workflow(t.Context(), id)
	if err != nil || len(flow.Tasks) != 5 {
		t.Fatalf("%+v, %v", flow, err)
	}
	for _, child := range flow.Tasks {
		if child.Kind == "square" && (child.Tags[0] != "part" || child.MaxAttempts != 1) || child.Tenant != "acme" {
			t.Errorf("%+v", child)
		}
	}
	w.stop()
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%v is left behind, %v", left, err)
	}
}

func TestOnlyACommandThatSucceedsSpawnsChildren(t *testing.T) {
	w := work(t, func(m *tusk.Mux) {
		builtin.Command(m, "fails", []string{"sh", "-c", `echo '{"kind":"echo"}' > "$TUSK_CHILDREN"; exit 1`}, anyDefault)
	})
	task := w.ended("fails", "{}")
	all, err := w.client.List(t.Context(), tusk.Filter{})
	if err != nil || len(all) != 1 || task.State != tusk.StateDiscarded {
		t.Errorf("%v, %v", all, err)
	}
}

func TestChildrenThatCannotBeSpawnedDiscardTheTask(t *testing.T) {
	w := work(t, func(m *tusk.Mux) {
		builtin.Command(m, "lists", []string{"sh", "-c", `sed 's/^"//; s/"$//; s/\\"/"/g; s/;/\n/g' > "$TUSK_CHILDREN"`},
			anyDefault)
	})
	for list, want := range map[string]string{
		`{\"wait\":true}`:                          "TUSK_CHILDREN: asks to wait, but lists no child",
		`{\"kind\":\"a\"};;nonsense`:               "TUSK_CHILDREN: line 3: child: not JSON",
		`{\"kind\":\"a\",\"wait\":true}`:           `TUSK_CHILDREN: line 1: child: unknown field "wait"`,
		`{\"kind\":\"a\",\"key\":\"k\"}`:           `TUSK_CHILDREN: line 1: child: unknown field "key"`,
		`{\"kind\":\"a\",\"tenant\":\"t\"}`:        `TUSK_CHILDREN: line 1: child: unknown field "tenant"`,
		`{\"kind\":\"A B\"}`:                       "TUSK_CHILDREN: line 1: kind: ",
		`{\"kind\":\"a\",\"delay\":\"soon\"}`:      "TUSK_CHILDREN: line 1: delay: ",
		`{\"args\":{}}`:                            "TUSK_CHILDREN: line 1: kind: ",
		strings.Repeat(`{\"kind\":\"a\"};`, 10001): "TUSK_CHILDREN: line 10001: children: are 10001, at most 10000 are",
	} {
		id := w.enqueue("lists", `"`+list+`"`, &tusk.Options{MaxAttempts: 5})
		task := w.await(id, func(t *tusk.TaskInfo) bool { return t.State.Finished() })
		if task.State != tusk.StateDiscarded || task.Attempt != 1 || !strings.HasPrefix(lastError(task), want) {
			t.Errorf("%.40s: %v, attempt %d, %q, want %q", list, task.State, task.Attempt, lastError(task), want)
		}
	}
	if all, err := w.client.List(t.Context(), tusk.Filter{Kinds: []string{"a"}}); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
}

func TestACommandSpawnsChildrenOnlyIntoQueuesThatItsWorkerAllows(t *testing.T) {
	w := work(t, func(m *tusk.Mux) {
		one := []string{"sh", "-c", `echo '{"kind":"a"}' > "$TUSK_CHILDREN"`}
		builtin.Command(m, "any", one, nil)
		builtin.Command(m, "other", one, &builtin.CommandOptions{ChildQueues: []string{"aside"}})
	})
	for _, kind := range []string{"any", "other"} {
		want := `TUSK_CHILDREN: line 1: this worker does not let commands spawn children into the queue "default"; `
		if task := w.ended(kind, "{}"); !strings.HasPrefix(lastError(task), want) {
			t.Errorf("%s: %v, %q", kind, task.State, lastError(task))
		}
	}
	if all, err := w.client.List(t.Context(), tusk.Filter{Kinds: []string{"a"}}); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
}

func TestACommandMayReplaceTheFilesThatItWritesTo(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	w := work(t, func(m *tusk.Mux) {
		builtin.Command(m, "replaces", []string{"sh", "-c", `
echo '{"kind":"A"}' > "$TUSK_CHILDREN"; sed -i s/A/a/ "$TUSK_CHILDREN"`}, anyDefault)
		builtin.Command(m, "jumps", []string{"sh", "-c", `echo x > new; mv new "$TUSK_GO_TO"`}, nil)
		builtin.Command(m, "removes", []string{"sh", "-c", `rm "$TUSK_CHILDREN"`}, nil)
		builtin.Command(m, "links", []string{"sh", "-c", `ln -sf /dev/zero "$TUSK_CHILDREN"`}, nil)
		builtin.Command(m, "both", []string{"sh", "-c", `
printf '{"kind":"a"}\n{"wait":true}' > "$TUSK_CHILDREN"; echo x > "$TUSK_GO_TO"`}, anyDefault)
	})
	t.Chdir(dir)
	for kind, want := range map[string]string{
		"replaces": "",
		"jumps":    `go_to: jumps is no stage`,
		"removes":  "TUSK_CHILDREN: lstat ",
		"links":    "TUSK_CHILDREN: " + dir + "/tusk-children-",
		"both":     "TUSK_GO_TO: a task that waits for its children cannot go to a stage",
	} {
		task := w.ended(kind, "{}")
		if !strings.HasPrefix(lastError(task), want) || (task.State == tusk.StateCompleted) != (want == "") {
			t.Errorf("%s: %v, %q", kind, task.State, lastError(task))
		}
	}
	if all, err := w.client.List(t.Context(), tusk.Filter{Kinds: []string{"a"}}); err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
	w.stop()
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%v is left behind, %v", left, err)
	}
}

// answersTheLiving is a store that, like a database, answers no call whose context has ended.
type answersTheLiving struct{ store.Store }

func (s answersTheLiving) Unwrap() store.Store { return s.Store }

func (s answersTheLiving) Records(ctx context.Context, f store.RecordFilter) ([]store.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return s.Store.Records(ctx, f)
}

func TestACommandThatEndsItsWorkWhenToldToStopSpawnsItsChildren(t *testing.T) {
	w := workOn(t, answersTheLiving{memory.New()}, func(m *tusk.Mux) {
		builtin.Command(m, "ingest.fetch", []string{"sh", "-c", `
trap 'echo "{\"kind\":\"a\"}" > "$TUSK_CHILDREN"; exit 0' TERM; while :; do sleep 0.02; done`}, anyDefault)
	})
	p, err := tusk.ParsePipeline("ingest", []byte(`{"stages":[{"name":"fetch","queue":"default"},{"name":"parse"}]}`))
	if err == nil {
		err = w.client.DefinePipeline(t.Context(), p)
	}
	if err != nil {
		t.Fatal(err)
	}
	// The worker's copies of pipelines and limits are no longer fresh at the end.
	id := w.enqueue("ingest.fetch", "{}", &tusk.Options{MaxAttempts: 1, Timeout: 1500 * time.Millisecond})
	task := w.await(id, func(t *tusk.TaskInfo) bool { return t.State.Finished() })
	flow, err := w.client.Workflow(t.Context(), id)
	if err != nil || task.State != tusk.StateCompleted || len(flow.Tasks) != 3 {
		t.Errorf("%v, %s: %+v, %v", task.State, lastError(task), flow, err)
	}
}
