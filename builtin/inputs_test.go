//go:build unix

package builtin_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/builtin"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

func TestACommandGetsItsInputsInAFile(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	w := work(t, func(m *tusk.Mux) {
		builtin.Exec(m)
		builtin.Command(m, "sum", []string{"sh", "-c", `cat "$TUSK_INPUTS"`}, nil)
		builtin.Command(m, "alone", []string{"sh", "-c", `echo "${TUSK_INPUTS-none}"`}, nil)
	})
	flow := tusk.NewWorkflow()
	command := func(script string) tusk.Args {
		return tusk.RawArgs{Name: builtin.KindExec, JSON: json.RawMessage(shell(script))}
	}
	a := flow.Task("a", command(`echo '{"n":1}'`), nil)
	b := flow.Task("b", command("true"), nil)
	c := flow.Task("c", command(`echo '"three"'`), nil)
	flow.Task("sum", tusk.RawArgs{Name: "sum"}, nil).After(a, b, c)
	flow.Task("exec", command(`cat "$TUSK_INPUTS"`), nil).After(a, b, c)
	flow.Task("alone", tusk.RawArgs{Name: "alone"}, nil)
	run, err := w.client.EnqueueWorkflow(t.Context(), flow)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sum", "exec"} {
		var got []struct {
			ID, Name, Kind, State string
			Output                json.RawMessage
		}
		task := w.await(run.Tasks[name], func(t *tusk.TaskInfo) bool { return t.State.Finished() })
		if err := json.Unmarshal(task.Detail.Output, &got); err != nil || len(got) != 3 {
			t.Fatalf("%s: %v, %v %s %s", name, err, task.State, lastError(task), task.Detail.Output)
		}
		for i, want := range []string{`{"n":1}`, "", `"three"`} {
			if in := got[i]; in.Name != "abc"[i:i+1] || in.ID != run.Tasks[in.Name].String() || in.Kind != "exec" ||
				in.State != "completed" || string(in.Output) != want {
				t.Errorf("%s: %+v with output %s", name, in, in.Output)
			}
		}
	}
	alone := w.await(run.Tasks["alone"], func(t *tusk.TaskInfo) bool { return t.State.Finished() })
	if string(alone.Detail.Output) != `"none"` {
		t.Errorf("output %s", alone.Detail.Output)
	}
	w.stop()
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range left {
		if strings.HasPrefix(f.Name(), "tusk-inputs-") {
			t.Errorf("%s is left behind", f.Name())
		}
	}
}

func TestACommandWithoutInputsNeedsNoFile(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "missing"))
	w := work(t, func(m *tusk.Mux) { builtin.Exec(m) })
	flow := tusk.NewWorkflow()
	args := json.RawMessage(shell(`echo "\"${TUSK_INPUTS-none}\""`))
	flow.Task("alone", tusk.RawArgs{Name: builtin.KindExec, JSON: args}, &tusk.Options{MaxAttempts: 1})
	run, err := w.client.EnqueueWorkflow(t.Context(), flow)
	if err != nil {
		t.Fatal(err)
	}
	alone := w.await(run.Tasks["alone"], func(t *tusk.TaskInfo) bool { return t.State.Finished() })
	if alone.State != tusk.StateCompleted || string(alone.Detail.Output) != `"none"` {
		t.Errorf("%v, output %s: %s", alone.State, alone.Detail.Output, lastError(alone))
	}
	w.stop()
}

// needless is a store that cannot say what a task needed.
type needless struct{ store.Store }

func (s needless) Unwrap() store.Store { return s.Store }

func (s needless) List(ctx context.Context, f store.Filter) ([]store.Task, error) {
	if f.Detail && f.NoArgs {
		return nil, errors.New("no such server")
	}
	return s.Store.List(ctx, f)
}

func TestInputsThatCannotBeReadPostponeTheTask(t *testing.T) {
	w := workOn(t, needless{memory.New()}, func(m *tusk.Mux) { builtin.Command(m, "sum", []string{"true"}, nil) })
	task := w.await(w.enqueue("sum", "{}", &tusk.Options{MaxAttempts: 1}), func(t *tusk.TaskInfo) bool {
		return t.State != tusk.StateAvailable && t.State != tusk.StateRunning
	})
	if task.State != tusk.StateScheduled || task.Attempt != 0 {
		t.Errorf("%v, attempt %d: %s", task.State, task.Attempt, lastError(task))
	}
}
