package tusk_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

func ExampleClient_Retry() {
	ctx, client := context.Background(), newClient()
	ada, _ := client.Enqueue(ctx, Greet{Name: "Ada"}, nil)
	_, _ = client.Cancel(ctx, ada.ID, "")
	fmt.Println(client.Retry(ctx, ada.ID), client.Reprioritize(ctx, ada.ID, -5))
	task, _ := client.Get(ctx, ada.ID)
	fmt.Println(task.State, task.Priority)
	fmt.Println(client.Delete(ctx, ada.ID), errors.Is(client.Delete(ctx, ada.ID), tusk.ErrNotFound))
	// Output:
	// <nil> <nil>
	// available -5
	// <nil> true
}

func ExampleClient_Search() {
	ctx, client := context.Background(), newClient()
	for _, name := range []string{"Ada", "Alan", "Grace"} {
		_, _ = client.Enqueue(ctx, Greet{Name: name}, &tusk.Options{Tags: []string{"welcome"}})
	}
	page, more, err := client.Search(ctx, tusk.Filter{Tags: []string{"welcome"}, Limit: 10}, 100_000)
	fmt.Println(len(page), more.IsZero(), err)
	// Output: 3 true <nil>
}

func ExampleClient_Await() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client := newClient()
	ada, _ := client.Enqueue(ctx, Greet{Name: "Ada"}, nil)
	ended := make(chan error)
	go func() { ended <- client.AwaitEnd(ctx, ada.ID) }()
	_, _ = client.Cancel(ctx, ada.ID, "she is away")
	fmt.Println(<-ended)
	task, err := client.Await(ctx, ada.ID)
	fmt.Println(task.State, task.Reason, err)
	// Output:
	// <nil>
	// cancelled she is away <nil>
}

// What a worker has done, what failed and why, and which workers are live.
func ExampleClient_Errors() {
	ctx, cancel := context.WithCancel(context.Background())
	client, mux := newClient(), tusk.NewMux()
	tusk.Handle(mux, func(ctx context.Context, t *tusk.Task[Greet]) error {
		return fmt.Errorf("%s is not at home", t.Args.Name)
	})
	worker, _ := tusk.NewWorker(client, mux, nil)
	events, _ := worker.Subscribe(tusk.EventDiscarded)
	done := make(chan error)
	go func() { done <- worker.Run(ctx) }()
	_, _ = client.Enqueue(ctx, Greet{Name: "Ada"}, &tusk.Options{MaxAttempts: 1})
	<-events

	groups, _ := client.Errors(ctx, store.ErrorFilter{})
	fmt.Println(groups[0].Count, groups[0].Kind, groups[0].Sample)
	stats, _ := client.Stats(ctx, store.StatsFilter{Bucket: time.Hour, From: time.Now().Add(-time.Hour),
		Until: time.Now().Add(time.Hour)})
	fmt.Println(stats[0].Queue, stats[0].Failed, stats[0].Discarded)
	workers, _ := client.Workers(ctx)
	fmt.Println(workers[0].Queues, workers[0].Version == tusk.Version(), len(worker.Health()) > 0, worker.Leads(),
		worker.Missed())
	cancel()
	<-done
	// Output:
	// 1 greet Ada is not at home
	// default 1 1
	// [default] true true true 0
}

// A worker stops claiming, so that it can be stopped when it is idle.
func ExampleClient_QuietWorker() {
	ctx, cancel := context.WithCancel(context.Background())
	client, mux := newClient(), tusk.NewMux()
	tusk.Handle(mux, func(context.Context, *tusk.Task[Greet]) error { return nil })
	worker, _ := tusk.NewWorker(client, mux, nil)
	events, _ := worker.Subscribe(tusk.EventCompleted)
	done := make(chan error)
	go func() { done <- worker.Run(ctx) }()
	_, _ = client.Enqueue(ctx, Greet{Name: "Ada"}, nil)
	<-events

	fmt.Println(client.QuietWorker(ctx, worker.ID()))
	queues, workers, _ := client.QueuesAndWorkers(ctx)
	fmt.Println(len(queues), workers[0].Queues, workers[0].Quiet, client.WakeWorker(ctx, worker.ID()))
	fmt.Println(errors.Is(client.QuietWorker(ctx, tusk.NewID()), tusk.ErrNotFound))
	cancel()
	<-done
	// Output:
	// <nil>
	// 1 [default] true <nil>
	// true
}

func ExampleClient_PauseQueue() {
	ctx, client := context.Background(), newClient()
	fmt.Println(client.PauseQueue(ctx, "mail"))
	queues, _ := client.Queues(ctx)
	fmt.Println(queues[0].Name, queues[0].Paused, client.ResumeQueue(ctx, "mail"))
	// Output:
	// <nil>
	// mail true <nil>
}

func ExampleClient_RemoveLimits() {
	ctx, client := context.Background(), newClient()
	_ = client.SetLimits(ctx, "mail", tusk.Limits{PerTenant: 1})
	limits, _ := client.Limits(ctx)
	fmt.Println(limits["mail"].PerTenant, client.RemoveLimits(ctx, "mail"))
	// Output: 1 <nil>
}

func ExampleScheduleInfo_Between() {
	ctx, client := context.Background(), newClient()
	_ = client.PutSchedule(ctx, tusk.Schedule{Name: "import", Spec: "@every 6h", Args: Greet{Name: "data"}})
	s, _ := client.Schedule(ctx, "import")
	day := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	ticks, err := s.Between(day, day.AddDate(0, 0, 1))
	fmt.Println(len(ticks), err, client.RemoveSchedule(ctx, "import"))
	// Output: 4 <nil> <nil>
}

// A range that ends now ends by the database's clock.
func ExampleClient_Now() {
	ctx, client := context.Background(), newClient()
	_ = client.PutSchedule(ctx, tusk.Schedule{Name: "export", Spec: "@every 6h", Args: Greet{Name: "data"}})
	now, _ := client.Now(ctx)
	tasks, err := client.BackfillSchedule(ctx, "export", now.Add(-24*time.Hour), now)
	fmt.Println(len(tasks), err, client.RemoveSchedule(ctx, "export"))
	// Output: 4 <nil> <nil>
}

// A process that begins operations when there may be no leader carries them on itself.
func ExampleClient_CarryOperations() {
	ctx, cancel := context.WithCancel(context.Background())
	client := newClient()
	_, _ = client.Enqueue(ctx, Greet{Name: "Ada"}, nil)
	o, _ := client.StartOperation(ctx, tusk.Filter{Queues: []string{"default"}}, tusk.Change{Op: tusk.OpDelete}, nil)
	go client.CarryOperations(ctx)
	for o.State != tusk.OperationDone {
		time.Sleep(time.Millisecond)
		o, _ = client.Operation(ctx, o.ID)
	}
	all, _ := client.Operations(ctx)
	fmt.Println(len(all), all[0].Changed, client.CancelOperation(ctx, o.ID)) // it is over, and stays as it is
	cancel()
	// Output: 1 1 <nil>
}

// A server does the leader's work for workers that never lead: here it admits a delayed task.
func ExampleClient_Lead() {
	ctx, cancel := context.WithCancel(context.Background())
	client := newClient()
	done := make(chan error)
	go func() { done <- client.Lead(ctx, nil) }()
	r, _ := client.Enqueue(ctx, Greet{Name: "Ada"}, &tusk.Options{Delay: time.Millisecond})
	task, _ := client.Get(ctx, r.ID)
	for task.State != tusk.StateAvailable {
		time.Sleep(time.Millisecond)
		task, _ = client.Get(ctx, r.ID)
	}
	cancel()
	fmt.Println(task.State, <-done)
	// Output: available <nil>
}

// A repeated request is recognized by its record, and stores nothing again.
func ExampleClient_EnqueueWith() {
	ctx, client := context.Background(), newClient()
	for range 2 {
		_, err := client.EnqueueWith(ctx, store.Record{Kind: "request", Name: "r-17", Body: []byte(`{}`)},
			[]tusk.NewTask{{Args: Greet{Name: "Ada"}}})
		fmt.Println(errors.Is(err, tusk.ErrConflict))
	}
	records, _ := client.Store().Records(ctx, store.RecordFilter{Kind: "request"})
	fmt.Println(len(records), "record")
	// Output:
	// false
	// true
	// 1 record
}

// A handler that gives signs of life may take its time. One that gives none, and ignores the end
// of its context, loses its task.
func ExampleWithStallTimeout() {
	client, mux := newClient(), tusk.NewMux()
	stuck := make(chan struct{})
	tusk.Handle(mux, func(_ context.Context, t *tusk.Task[Greet]) error {
		t.Alive()
		if t.Attempt == 1 {
			<-stuck
		}
		return nil
	}, tusk.WithStallTimeout(20*time.Millisecond))
	worker, _ := tusk.NewWorker(client, mux, &tusk.WorkerConfig{HungGrace: 20 * time.Millisecond})
	events, _ := worker.Subscribe(tusk.EventHung, tusk.EventCompleted)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- worker.Run(ctx) }()
	_, _ = client.Enqueue(ctx, Greet{Name: "Ada"}, &tusk.Options{Backoff: tusk.ConstantBackoff(time.Millisecond)})
	hung := <-events
	fmt.Println(hung.Kind, hung.Error, worker.Hung())
	fmt.Println((<-events).Kind)
	close(stuck)
	cancel()
	<-done
	// Output:
	// hung no progress for 20ms 1
	// completed
}

// Which queues are archived is a setting in the database; package archive moves their tasks.
func ExampleClient_SetArchive() {
	ctx, client := context.Background(), newClient()
	no := false
	fmt.Println(client.SetArchiveAll(ctx, true), client.SetArchive(ctx, "thumbnails", &no))
	fmt.Println(client.ArchivesAll(ctx))
	leader, _ := client.NewLeader(&tusk.WorkerConfig{Retention: tusk.Retention{Completed: 24 * time.Hour}})
	keep, err := leader.Archivable(ctx)
	fmt.Println(keep.Of("mail", store.Completed), keep.Of("thumbnails", store.Completed), err)
	fmt.Println(client.Describe(store.Task{Queue: "mail"}).MaxAttempts)
	// Output:
	// <nil> <nil>
	// true <nil>
	// 24h0m0s 0s <nil>
	// 25
}

// A task from an archive runs again as a new one.
func ExampleClient_Again() {
	ctx, client := context.Background(), newClient()
	old := client.Describe(store.Task{ID: tusk.NewID(), Kind: "greet", Queue: "mail", Args: []byte(`{"name": "Ada"}`),
		State: store.Discarded})
	task, err := client.Again(old)
	if err != nil {
		panic(err)
	}
	e, err := client.Enqueue(ctx, task.Args, task.Options)
	fmt.Println(e.Result, e.ID != old.ID, task.Options.Metadata["rerun_of"] == old.ID.String(), err)
	// Output: added true true <nil>
}
