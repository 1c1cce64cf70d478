package tusk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store/memory"
)

type Greet struct {
	Name string `json:"name"`
}

func (Greet) Kind() string { return "greet" }

// The shortest way from a task to its handler. In your own program, the store is
// store/sqlite or store/postgres, and the worker runs until a signal.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	client, _ := tusk.NewClient(memory.New(), nil)
	mux := tusk.NewMux()
	tusk.Handle(mux, func(ctx context.Context, t *tusk.Task[Greet]) error {
		fmt.Printf("hello %s, attempt %d\n", t.Args.Name, t.Attempt)
		cancel()
		return nil
	})
	if _, err := client.Enqueue(ctx, Greet{Name: "Ada"}, nil); err != nil {
		fmt.Println(err)
	}
	worker, err := tusk.NewWorker(client, mux, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("stopped:", worker.Run(ctx))
	// Output:
	// hello Ada, attempt 1
	// stopped: <nil>
}

// runUntil runs a worker until the task has the state, and returns the task. The
// examples share it.
func runUntil(
	client *tusk.Client, mux *tusk.Mux, id tusk.ID, state tusk.State, middleware ...tusk.Middleware,
) *tusk.TaskInfo {
	ctx, cancel := context.WithCancel(context.Background())
	worker, err := tusk.NewWorker(client, mux, &tusk.WorkerConfig{Middleware: middleware})
	if err != nil {
		panic(err)
	}
	done := make(chan error)
	go func() { done <- worker.Run(ctx) }()
	task, err := client.Get(ctx, id)
	for ; err == nil && task.State != state; task, err = client.Get(ctx, id) {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := errors.Join(err, <-done); err != nil {
		panic(err)
	}
	return task
}

func newClient() *tusk.Client {
	client, err := tusk.NewClient(memory.New(), &tusk.ClientConfig{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		panic(err)
	}
	return client
}

func ExampleClient_Enqueue() {
	ctx, client := context.Background(), newClient()
	r, _ := client.Enqueue(ctx, Greet{Name: "Ada"}, &tusk.Options{
		Queue:       "mail",
		Priority:    -10, // before others
		Delay:       time.Hour,
		MaxAttempts: 5,
		Backoff:     tusk.LinearBackoff(5 * time.Minute),
		Tags:        []string{"welcome"},
		Metadata:    map[string]string{"request": "r-17"},
	})
	task, _ := client.Get(ctx, r.ID)
	fmt.Println(r.Result, task.State, task.Queue, task.Priority, task.MaxAttempts, task.Metadata["request"])
	// Output: added scheduled mail -10 5 r-17
}

func ExampleClient_Enqueue_key() {
	ctx, client := context.Background(), newClient()
	first, _ := client.Enqueue(ctx, Greet{Name: "Ada"}, &tusk.Options{Key: "greeting-of-ada"})
	second, _ := client.Enqueue(ctx, Greet{Name: "Ada"}, &tusk.Options{Key: "greeting-of-ada"})
	fmt.Println(first.Result, second.Result, first.ID == second.ID)
	// Output: added skipped true
}

// A document is indexed again when it changes. A newer version replaces an older one
// that waits. Versions older than one already seen are ignored.
func ExampleClient_Enqueue_rerun() {
	ctx, client := context.Background(), newClient()
	index := func(version int) {
		r, err := client.Enqueue(ctx, Greet{Name: fmt.Sprint("version ", version)}, &tusk.Options{
			Key: "document-17", OnConflict: tusk.Rerun, SourceTime: time.Unix(int64(version), 0)})
		fmt.Println(version, r.Result, err)
	}
	index(1)
	index(3)
	index(2)
	tasks, _ := client.List(ctx, tusk.Filter{Key: "document-17"})
	fmt.Println(len(tasks), string(tasks[0].Task.Args))
	// Output:
	// 1 added <nil>
	// 3 replaced <nil>
	// 2 stale <nil>
	// 1 {"name":"version 3"}
}

func ExampleClient_EnqueueMany() {
	ctx, client := context.Background(), newClient()
	_, err := client.EnqueueMany(ctx, []tusk.NewTask{
		{Args: Greet{Name: "Ada"}},
		{Args: Greet{Name: "Alan"}, Options: &tusk.Options{Queue: "Not A Name"}},
	})
	var batch *tusk.BatchError
	fmt.Println(errors.As(err, &batch))
	fmt.Println(batch.Items[1])
	// Output:
	// true
	// queue: "Not A Name" is not a name: want 1 to 64 of a-z 0-9 _ . : - that begin with a letter or digit, without ..
}

func ExampleHandleFunc() {
	client, mux := newClient(), tusk.NewMux()
	tusk.HandleFunc(mux, func(ctx context.Context, args Greet) error {
		fmt.Println("hello", args.Name)
		return nil
	}, tusk.WithTimeout(time.Minute))
	r, _ := client.Enqueue(context.Background(), Greet{Name: "Ada"}, nil)
	fmt.Println(runUntil(client, mux, r.ID, tusk.StateCompleted).State)
	// Output:
	// hello Ada
	// completed
}

func ExampleSnooze() {
	client, mux := newClient(), tusk.NewMux()
	calls := 0
	tusk.Handle(mux, func(ctx context.Context, t *tusk.Task[Greet]) error {
		if calls++; calls < 3 {
			return tusk.Snooze(time.Millisecond) // not ready yet: try again
		}
		return nil
	})
	r, _ := client.Enqueue(context.Background(), Greet{}, nil)
	task := runUntil(client, mux, r.ID, tusk.StateCompleted)
	fmt.Println(calls, "calls,", task.Attempt, "attempt")
	// Output: 3 calls, 1 attempt
}

func ExampleDiscard() {
	client, mux := newClient(), tusk.NewMux()
	tusk.Handle(mux, func(ctx context.Context, t *tusk.Task[Greet]) error {
		return tusk.Discard(errors.New("no such person"))
	})
	r, _ := client.Enqueue(context.Background(), Greet{Name: "Nobody"}, nil)
	task := runUntil(client, mux, r.ID, tusk.StateDiscarded)
	fmt.Println(task.Reason, "-", task.Detail.Attempts[0].Error)
	// Output: discarded by its handler - no such person
}

func ExampleCancel() {
	client, mux := newClient(), tusk.NewMux()
	tusk.Handle(mux, func(ctx context.Context, t *tusk.Task[Greet]) error {
		return tusk.Cancel("unsubscribed meanwhile")
	})
	r, _ := client.Enqueue(context.Background(), Greet{}, nil)
	fmt.Println(runUntil(client, mux, r.ID, tusk.StateCancelled).Reason)
	// Output: unsubscribed meanwhile
}

func ExampleRetryAfter() {
	client, mux := newClient(), tusk.NewMux()
	tusk.Handle(mux, func(ctx context.Context, t *tusk.Task[Greet]) error {
		if t.Attempt == 1 {
			return tusk.RetryAfter(time.Millisecond, errors.New("too many requests"))
		}
		return nil
	})
	r, _ := client.Enqueue(context.Background(), Greet{}, nil)
	task := runUntil(client, mux, r.ID, tusk.StateCompleted)
	fmt.Println(task.Attempt, task.Detail.Attempts[0].Error)
	// Output: 2 too many requests
}

func ExampleTask_RecordOutput() {
	client, mux := newClient(), tusk.NewMux()
	tusk.Handle(mux, func(ctx context.Context, t *tusk.Task[Greet]) error {
		t.SetProgress(50, "half way")
		t.Logger().Info("greeting", "name", t.Args.Name)
		return t.RecordOutput(map[string]int{"letters": len(t.Args.Name)})
	})
	r, _ := client.Enqueue(context.Background(), Greet{Name: "Ada"}, nil)
	d := runUntil(client, mux, r.ID, tusk.StateCompleted).Detail
	fmt.Println(string(d.Output), d.Progress.Percent, d.Logs[0].Text)
	// Output: {"letters":3} 50 greeting name=Ada
}

func ExampleMiddleware() {
	client, mux := newClient(), tusk.NewMux()
	tusk.HandleFunc(mux, func(context.Context, Greet) error { return nil })
	report := func(next tusk.HandlerFunc) tusk.HandlerFunc {
		return func(ctx context.Context, t *tusk.Task[json.RawMessage]) error {
			err := next(ctx, t)
			fmt.Println(t.Kind, string(t.Args), err)
			return err
		}
	}
	r, _ := client.Enqueue(context.Background(), Greet{Name: "Ada"}, nil)
	runUntil(client, mux, r.ID, tusk.StateCompleted, report)
	// Output: greet {"name":"Ada"} <nil>
}

func ExampleWorker_Subscribe() {
	client, mux := newClient(), tusk.NewMux()
	tusk.HandleFunc(mux, func(context.Context, Greet) error { return tusk.Discard(errors.New("boom")) })
	worker, _ := tusk.NewWorker(client, mux, nil)
	events, unsubscribe := worker.Subscribe(tusk.EventDiscarded)
	defer unsubscribe()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- worker.Run(ctx) }()
	_, _ = client.Enqueue(ctx, Greet{}, nil)
	e := <-events
	fmt.Println(e.Kind, e.Task.Kind, e.Error)
	cancel()
	<-done
	// Output: discarded greet boom
}

func ExampleClient_PutSchedule() {
	ctx, client := context.Background(), newClient()
	err := client.PutSchedule(ctx, tusk.Schedule{
		Name: "morning", Spec: "30 7 * * 1-5", Zone: "Europe/Berlin",
		Args:   Greet{Name: "everybody"},
		Missed: tusk.MissedSkip, // a late greeting is not needed
	})
	fmt.Println(err)
	all, _ := client.Schedules(ctx)
	fmt.Println(all[0].Name, all[0].Words)
	// Output:
	// <nil>
	// morning at 07:30 on Monday to Friday, Europe/Berlin time
}

// If the names of schedules come from users, one user must not replace another's schedule.
func ExampleClient_PutScheduleIf() {
	ctx, client := context.Background(), newClient()
	put := func(tenant string) error {
		s := tusk.Schedule{Name: "morning", Spec: "@daily", Args: Greet{}, Options: &tusk.Options{Tenant: tenant}}
		return client.PutScheduleIf(ctx, s, func(old tusk.ScheduleInfo) error {
			if old.Tenant != tenant {
				return errors.New("that name is taken")
			}
			return nil
		})
	}
	fmt.Println(put("acme"), put("acme"))
	fmt.Println(put("umbrella"))
	// Output:
	// <nil> <nil>
	// schedule morning: that name is taken
}

// A publication date may be missing. Then the enqueue is refused, and the task does not run at once.
func ExampleAt() {
	ctx, client := context.Background(), newClient()
	var published time.Time
	_, err := client.Enqueue(ctx, Greet{Name: "readers"}, &tusk.Options{RunAt: tusk.At(published)})
	fmt.Println(errors.Is(err, tusk.ErrInvalid))
	// Output: true
}

func ExampleClient_Edit() {
	ctx, client := context.Background(), newClient()
	var ids []tusk.ID
	for range 3 {
		r, _ := client.Enqueue(ctx, Greet{}, nil)
		ids = append(ids, r.ID)
	}
	edited, _ := client.Edit(ctx, ids, tusk.Change{Op: tusk.OpReprioritize, Priority: 5})
	for _, e := range edited {
		fmt.Println(e.Result, e.State)
	}
	// Output:
	// changed available
	// changed available
	// changed available
}

func ExampleClient_Edit_cancel() {
	ctx, client, mux := context.Background(), newClient(), tusk.NewMux()
	stopped := make(chan error)
	tusk.Handle(mux, func(ctx context.Context, t *tusk.Task[Greet]) error {
		edited, _ := client.Edit(ctx, []tusk.ID{t.ID}, tusk.Change{Op: tusk.OpCancel}) // any process may
		fmt.Println(edited[0].Result, edited[0].State)
		<-ctx.Done()
		stopped <- context.Cause(ctx)
		return context.Cause(ctx)
	})
	r, _ := client.Enqueue(ctx, Greet{}, nil)
	worker, _ := tusk.NewWorker(client, mux, &tusk.WorkerConfig{Beat: 10 * time.Millisecond}) // heartbeats tell it
	run, stop := context.WithCancel(ctx)
	go func() { fmt.Println(errors.Is(<-stopped, tusk.ErrCancelled)); stop() }()
	_ = worker.Run(run)
	task, _ := client.Get(ctx, r.ID)
	fmt.Println(task.State)
	// Output:
	// requested running
	// true
	// cancelled
}

func ExampleOptions_expiry() {
	client, mux := newClient(), tusk.NewMux()
	tusk.HandleFunc(mux, func(context.Context, Greet) error { return nil })
	r, _ := client.Enqueue(context.Background(), Greet{}, &tusk.Options{ExpiresIn: time.Millisecond})
	time.Sleep(5 * time.Millisecond) // no worker is running yet
	fmt.Println(runUntil(client, mux, r.ID, tusk.StateDiscarded).Reason)
	// Output: expired before it could start
}
