package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/sqlite"
	"github.com/tuskqueue/tusk/store/sqlite/sqlitefile"
)

// Tusk opens its file with write-ahead logging and synchronous=FULL by itself.
func openTusk(ctx context.Context, path string) (*sqlite.Store, *tusk.Client, error) {
	s, err := sqlitefile.Open(ctx, path)
	if err != nil {
		return nil, nil, err
	}
	_, err = s.Migrate(ctx, -1)
	var client *tusk.Client
	if err == nil {
		client, err = tusk.NewClient(s, &tusk.ClientConfig{Logger: slog.New(slog.DiscardHandler)})
	}
	if err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	return s, client, nil
}

func tuskBatches(ctx context.Context, path string, s setting) (enqueue, consume time.Duration, err error) {
	engine, client, err := openTusk(ctx, path)
	if err != nil {
		return 0, 0, err
	}
	defer engine.Close()
	began := time.Now()
	for left := s.tasks; left > 0; left -= s.batch {
		batch := make([]tusk.NewTask, min(s.batch, left))
		for i := range batch {
			batch[i].Args = tusk.RawArgs{Name: "work", JSON: json.RawMessage(s.payload)}
		}
		if _, err := client.EnqueueMany(ctx, batch); err != nil {
			return 0, 0, err
		}
	}
	enqueue = time.Since(began)
	consume, err = tuskWork(ctx, client, s.tasks, &tusk.WorkerConfig{ReadAhead: s.batch})
	return enqueue, consume, err
}

func tuskOneByOne(ctx context.Context, path string, s setting) (enqueue, consume time.Duration, err error) {
	engine, client, err := openTusk(ctx, path)
	if err != nil {
		return 0, 0, err
	}
	defer engine.Close()
	began := time.Now()
	for range s.tasks {
		if _, err := client.Enqueue(ctx, tusk.RawArgs{Name: "work", JSON: json.RawMessage(s.payload)}, nil); err != nil {
			return 0, 0, err
		}
	}
	enqueue = time.Since(began)
	consume, err = tuskWork(ctx, client, s.tasks, &tusk.WorkerConfig{Concurrency: 1, ReadAhead: -1})
	return enqueue, consume, err
}

// tuskWork runs a worker until the database knows that all tasks are completed.
func tuskWork(ctx context.Context, client *tusk.Client, tasks int, config *tusk.WorkerConfig) (time.Duration, error) {
	var handled atomic.Int64
	all := make(chan struct{})
	mux := tusk.NewMux()
	tusk.HandleKind(mux, "work", func(context.Context, *tusk.Task[json.RawMessage]) error {
		if handled.Add(1) == int64(tasks) {
			close(all)
		}
		return nil
	})
	worker, err := tusk.NewWorker(client, mux, config)
	if err != nil {
		return 0, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- worker.Run(ctx) }()
	select {
	case <-all:
	case err := <-ended:
		return 0, errors.Join(errors.New("the worker ended"), err)
	}
	for {
		counts, err := client.Store().Count(ctx)
		if err != nil {
			return 0, err
		}
		var left int64
		for _, c := range counts {
			left += c.Tasks
		}
		if left == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	took := time.Since(began)
	stop()
	return took, <-ended
}

// tuskEngineOneByOne calls the engine as goqite is called: one task a call, the
// next call when the one before is durable.
func tuskEngineOneByOne(ctx context.Context, path string, s setting) (enqueue, consume time.Duration, err error) {
	engine, _, err := openTusk(ctx, path)
	if err != nil {
		return 0, 0, err
	}
	defer engine.Close()
	began := time.Now()
	for range s.tasks {
		task := store.NewTask{ID: tusk.NewID(), Kind: "work", Queue: "default", Args: []byte(s.payload)}
		if _, err := engine.Enqueue(ctx, []store.NewTask{task}); err != nil {
			return 0, 0, err
		}
	}
	enqueue = time.Since(began)
	began = time.Now()
	worker := store.Worker{ID: tusk.NewID(), Queues: []string{"default"}}
	if _, err := engine.Extend(ctx, store.Beat{Worker: worker, TTL: time.Hour}); err != nil {
		return 0, 0, err
	}
	for range s.tasks {
		tasks, err := engine.Claim(ctx, store.ClaimRequest{Worker: worker.ID, Queues: worker.Queues, Limit: 1, Token: store.NewToken()})
		if err != nil || len(tasks) != 1 {
			return 0, 0, fmt.Errorf("claimed %d tasks: %w", len(tasks), err)
		}
		lost, err := engine.Finish(ctx, []store.Outcome{{Task: &tasks[0], State: store.Completed, Attempt: tasks[0].Attempt}})
		if err != nil || len(lost) > 0 {
			return 0, 0, fmt.Errorf("lost %d tasks: %w", len(lost), err)
		}
	}
	return enqueue, time.Since(began), nil
}
