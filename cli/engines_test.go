package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/cbfake"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/enginetest"
	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
)

// databases creates an empty database for each engine of the command.
var databases = map[string]func(t *testing.T) string{
	"sqlite":   func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "tusk.db") },
	"postgres": func(t *testing.T) string { return enginetest.PostgresDSN(t) },
	"mysql":    func(t *testing.T) string { return mysqltest.Database(t) },
	"couchbase": func(t *testing.T) string {
		fake, err := cbfake.Start(1)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(fake.Close)
		return fake.URL() + "?sasl=plain"
	},
}

// onEachEngine runs a test on every engine of the command.
func onEachEngine(t *testing.T, test func(t *testing.T, client *tusk.Client)) {
	for name, dsn := range databases {
		t.Run(name, func(t *testing.T) {
			where, err := parseDSN(dsn(t))
			if err != nil {
				t.Fatal(err)
			}
			s, closeStore, err := engines[name](t.Context(), where.text)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = closeStore() })
			if m, ok := store.As[store.Migrator](s); ok {
				if _, err := m.Migrate(t.Context(), -1); err != nil {
					t.Fatal(err)
				}
			}
			client, err := tusk.NewClient(s, &tusk.ClientConfig{Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			test(t, client)
		})
	}
}

func enqueueMany(t *testing.T, client *tusk.Client, n int, o tusk.Options) {
	t.Helper()
	tasks := make([]tusk.NewTask, n)
	for i := range tasks {
		tasks[i] = tusk.NewTask{Args: tusk.RawArgs{Name: "echo"}, Options: &o}
	}
	if _, err := client.EnqueueMany(t.Context(), tasks); err != nil {
		t.Fatal(err)
	}
}

// operate starts an operation and continues it until it has ended.
func operate(t *testing.T, client *tusk.Client, f tusk.Filter, c tusk.Change) tusk.Operation {
	t.Helper()
	o, err := client.StartOperation(t.Context(), f, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if o, err = client.CarryOperation(t.Context(), o.ID, nil); err != nil {
		t.Fatal(err)
	}
	return o
}

func matching(t *testing.T, client *tusk.Client, f tusk.Filter) int64 {
	t.Helper()
	n, err := client.Count(t.Context(), f, 1e6)
	if err != nil {
		t.Fatal(err)
	}
	return n.Tasks
}

func TestOperationsOnEachEngine(t *testing.T) {
	onEachEngine(t, func(t *testing.T, client *tusk.Client) {
		enqueueMany(t, client, 300, tusk.Options{Queue: "q", Delay: time.Hour, Tags: []string{"x"}})
		enqueueMany(t, client, 5, tusk.Options{Queue: "other"})
		f := tusk.Filter{Tags: []string{"x"}}
		for _, c := range []struct {
			change tusk.Change
			after  tusk.Filter
		}{
			{tusk.Change{Op: tusk.OpReprioritize, Priority: -3}, tusk.Filter{States: []tusk.State{tusk.StateScheduled}}},
			{tusk.Change{Op: tusk.OpMove, Queue: "moved"}, tusk.Filter{Queues: []string{"moved"}}},
			{tusk.Change{Op: tusk.OpReschedule}, tusk.Filter{Queues: []string{"moved"}, Tags: []string{"x"},
				States: []tusk.State{tusk.StateAvailable}}},
			{tusk.Change{Op: tusk.OpCancel, Reason: "enough"}, tusk.Filter{States: []tusk.State{tusk.StateCancelled}}},
			{tusk.Change{Op: tusk.OpRetry}, tusk.Filter{Queues: []string{"moved"}, States: []tusk.State{tusk.StateAvailable}}},
		} {
			if o := operate(t, client, f, c.change); o.Changed != 300 || o.Seen != 300 || o.State != tusk.OperationDone {
				t.Errorf("%v: %+v", c.change.Op, o)
			}
			if n := matching(t, client, c.after); n != 300 {
				t.Errorf("after %v %d tasks match", c.change.Op, n)
			}
		}
		o, err := client.StartOperation(t.Context(), tusk.Filter{Queues: []string{"moved"}},
			tusk.Change{Op: tusk.OpDelete}, nil)
		if err != nil {
			t.Fatal(err)
		}
		enqueueMany(t, client, 7, tusk.Options{Queue: "moved"}) // these must not change
		if o, err = client.CarryOperation(t.Context(), o.ID, nil); err != nil || o.Changed != 300 {
			t.Errorf("%+v, %v", o, err)
		}
		if n := matching(t, client, tusk.Filter{}); n != 12 {
			t.Errorf("%d tasks are left", n)
		}
	})
}

func TestAWholeQueueGetsAnotherPriorityWhileAWorkerRuns(t *testing.T) {
	onEachEngine(t, func(t *testing.T, client *tusk.Client) {
		const n = 500
		enqueueMany(t, client, n, tusk.Options{Queue: "q", Priority: 5})
		var mu sync.Mutex
		ran := map[tusk.ID]int{}
		mux := tusk.NewMux()
		tusk.HandleKind(mux, "echo", func(_ context.Context, task *tusk.Task[json.RawMessage]) error {
			time.Sleep(2 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			ran[task.ID]++
			return nil
		})
		worker, err := tusk.NewWorker(client, mux, &tusk.WorkerConfig{Queues: []string{"q"}, Concurrency: 4, ReadAhead: -1})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- worker.Run(ctx) }()
		handled := func() int {
			mu.Lock()
			defer mu.Unlock()
			return len(ran)
		}
		eventually(t, func() bool { return handled() > 20 }, func() string { return "the worker does nothing" })
		o := operate(t, client, tusk.Filter{Queues: []string{"q"}, States: []tusk.State{tusk.StateAvailable}},
			tusk.Change{Op: tusk.OpReprioritize, Priority: -5})
		if o.Changed == 0 {
			t.Errorf("%+v", o)
		}
		eventually(t, func() bool { return matching(t, client, tusk.Filter{States: []tusk.State{tusk.StateCompleted}}) == n },
			func() string { return "not all run" })
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if len(ran) != n {
			t.Errorf("%d of %d ran", len(ran), n)
		}
		for id, times := range ran {
			if times != 1 {
				t.Errorf("%v ran %d times", id, times)
			}
		}
		changed := int64(0)
		tasks, err := client.List(t.Context(), tusk.Filter{Limit: 1000})
		for ; err == nil && len(tasks) > 0; tasks,
			err = client.List(t.Context(), tusk.Filter{Limit: 1000, Before: tasks[len(tasks)-1].ID}) {
			for _, task := range tasks {
				if task.Priority == -5 {
					changed++
				}
			}
		}
		if err != nil || changed < o.Changed { // a page whose answer was lost is not counted
			t.Errorf("%d tasks have the priority, %v: %+v", changed, err, o)
		}
	})
}

func TestWorkflowsRunAgainFromATaskOnEachEngine(t *testing.T) {
	onEachEngine(t, func(t *testing.T, client *tusk.Client) {
		w := tusk.NewWorkflow()
		args := tusk.RawArgs{Name: "echo"}
		first := w.Task("first", args, nil)
		var middle []*tusk.Node
		for _, name := range []string{"a", "b", "c"} {
			middle = append(middle, w.Task(name, args, nil).After(first))
		}
		w.Task("last", args, nil).After(middle...)
		w.OnSuccess("succeeded", args, nil)
		w.OnFinish("finished", args, nil)
		run, err := client.EnqueueWorkflow(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Cancel(t.Context(), run.Tasks["b"], "broken"); err != nil {
			t.Fatal(err)
		}
		mux := tusk.NewMux()
		tusk.HandleKind(mux, "echo", func(context.Context, *tusk.Task[json.RawMessage]) error { return nil })
		worker, err := tusk.NewWorker(client, mux, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- worker.Run(ctx) }()
		states := func(completed, cancelled int) func() bool {
			return func() bool {
				info, err := client.Workflow(t.Context(), run.ID)
				return err == nil && info.Done() && info.States[tusk.StateCompleted] == completed &&
					info.States[tusk.StateCancelled] == cancelled
			}
		}
		stands := func() string {
			info, err := client.Workflow(t.Context(), run.ID)
			return progressOf(info) + errorText(err)
		}
		eventually(t, states(4, 3), stands) // b, last and succeeded are cancelled
		if n, err := client.RetryWorkflowFrom(t.Context(), run.ID, "b"); n != 4 || err != nil {
			t.Errorf("%d run again, %v", n, err)
		}
		eventually(t, states(7, 0), stands)
		if n, err := client.RetryWorkflowFrom(t.Context(), run.ID, "first"); n != 7 || err != nil {
			t.Errorf("%d run again, %v", n, err)
		}
		eventually(t, states(7, 0), stands)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A workflow is read in pages, and a needed task may be on another page.
func TestAWorkflowSaysHowWhatItsTasksNeedStands(t *testing.T) {
	onEachEngine(t, func(t *testing.T, client *tusk.Client) {
		w := tusk.NewWorkflow()
		root := w.Task("root", tusk.RawArgs{Name: "echo"}, &tusk.Options{Delay: time.Hour})
		for i := range 40 {
			w.Task(fmt.Sprint("leaf", i), tusk.RawArgs{Name: "echo"}, nil).After(root)
		}
		run, err := client.EnqueueWorkflow(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		info, err := client.Workflow(t.Context(), run.ID)
		if err != nil || len(info.Tasks) != 41 {
			t.Fatalf("%+v, %v", info, err)
		}
		for _, leaf := range info.Tasks[1:] {
			if needs := leaf.Detail.Needs; len(needs) != 1 || needs[0].State != tusk.StateScheduled {
				t.Errorf("%s needs %+v", leaf.Node, needs)
			}
		}
	})
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}
