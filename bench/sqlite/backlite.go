package main

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	"github.com/mikestefanello/backlite"
)

// backliteTask is a task whose JSON is the payload.
type backliteTask json.RawMessage

func (backliteTask) Config() backlite.QueueConfig {
	return backlite.QueueConfig{Name: "default", MaxAttempts: 3, Timeout: time.Minute}
}

func (t backliteTask) MarshalJSON() ([]byte, error) { return t, nil }

func (t *backliteTask) UnmarshalJSON(text []byte) error {
	*t = append((*t)[:0], text...)
	return nil
}

// backliteWorkers are enough: when none is free it waits for 100 ms, so that it is
// far slower with a few, and with more it is not faster.
const backliteWorkers = 100

// backliteRun adds tasks in batches (of one, when one by one) and lets the
// dispatcher run them: it claims as many as it has free workers, and finishes
// each by itself.
func backliteRun(ctx context.Context, path string, s setting) (enqueue, consume time.Duration, err error) {
	db, err := openPool(path)
	if err != nil {
		return 0, 0, err
	}
	defer db.Close()
	client, err := backlite.NewClient(backlite.ClientConfig{DB: db, NumWorkers: backliteWorkers, ReleaseAfter: time.Hour})
	if err != nil {
		return 0, 0, err
	}
	if err := client.Install(); err != nil {
		return 0, 0, err
	}
	var handled atomic.Int64
	all := make(chan struct{})
	client.Register(backlite.NewQueue(func(context.Context, backliteTask) error {
		if handled.Add(1) == int64(s.tasks) {
			close(all)
		}
		return nil
	}))
	began := time.Now()
	for left := s.tasks; left > 0; left -= s.batch {
		batch := make([]backlite.Task, min(s.batch, left))
		for i := range batch {
			batch[i] = backliteTask(s.payload)
		}
		if _, err := client.Add(batch...).Ctx(ctx).Save(); err != nil {
			return 0, 0, err
		}
	}
	enqueue = time.Since(began)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	began = time.Now()
	client.Start(ctx)
	select {
	case <-all:
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
	for left := 1; left > 0; {
		if err := db.QueryRowContext(ctx, "select count(*) from backlite_tasks").Scan(&left); err != nil {
			return 0, 0, err
		}
	}
	consume = time.Since(began)
	if !client.Stop(ctx) {
		return 0, 0, errors.New("did not stop")
	}
	return enqueue, consume, nil
}
