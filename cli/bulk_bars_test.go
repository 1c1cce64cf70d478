package cli

import (
	"context"
	"encoding/json"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
)

// TestBulkOperationsBesideWork measures how fast operations change many waiting tasks, and how much they slow down
// other work: ten slots whose tasks take 5 ms, and whose queue never runs empty. TUSK_TEST_BULK=200000 go test ./cli
// -run BulkOperationsBesideWork -v -timeout 60m
func TestBulkOperationsBesideWork(t *testing.T) {
	many, err := strconv.Atoi(os.Getenv("TUSK_TEST_BULK"))
	if err != nil {
		t.Skip("TUSK_TEST_BULK=200000 has 200,000 tasks changed three times on each engine, which takes minutes")
	}
	onEachEngine(t, func(t *testing.T, client *tusk.Client) {
		storeWaiting(t, client, many)
		work := startStream(t, client)
		for _, change := range []tusk.Change{
			{Op: tusk.OpReprioritize, Priority: 7},
			{Op: tusk.OpMove, Queue: "other"},
			{Op: tusk.OpCancel, Reason: "measured"},
		} {
			alone := work.speed(5 * time.Second)
			began, before := time.Now(), work.done.Load()
			o := work.operate(change)
			took := time.Since(began).Seconds()
			beside := float64(work.done.Load()-before) / took
			t.Logf("%v: %d in %.1f s, %.0f/s; work: %.0f/s alone, %.0f/s beside it, %.2f of its speed",
				change.Op, o.Changed, took, float64(o.Changed)/took, alone, beside, beside/alone)
			if o.Changed != int64(many) {
				t.Errorf("%v changed %d of %d: %+v", change.Op, o.Changed, many, o)
			}
		}
	})
}

// storeWaiting stores tasks that no worker takes.
func storeWaiting(t *testing.T, client *tusk.Client, many int) {
	t.Helper()
	for left := many; left > 0; left -= 1000 {
		tasks := make([]tusk.NewTask, min(left, 1000))
		for i := range tasks {
			tasks[i] = tusk.NewTask{Args: tusk.RawArgs{Name: "waits", JSON: json.RawMessage(`{}`)},
				Options: &tusk.Options{Queue: "many"}}
		}
		if _, err := client.EnqueueMany(t.Context(), tasks); err != nil {
			t.Fatal(err)
		}
	}
}

// stream is continuous work: a worker, which also leads, and a producer for it.
type stream struct {
	t      *testing.T
	client *tusk.Client
	done   atomic.Int64
}

type pauseArgs struct{}

func (pauseArgs) Kind() string { return "pause" }

func startStream(t *testing.T, client *tusk.Client) *stream {
	t.Helper()
	s := &stream{t: t, client: client}
	mux := tusk.NewMux()
	tusk.HandleFunc(mux, func(context.Context, pauseArgs) error {
		time.Sleep(5 * time.Millisecond)
		s.done.Add(1)
		return nil
	})
	w, err := tusk.NewWorker(client, mux, &tusk.WorkerConfig{Concurrency: 10})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 2)
	go func() { over <- w.Run(ctx) }()
	go func() { over <- s.fill(ctx) }()
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-over; err != nil {
				t.Error(err)
			}
		}
	})
	return s
}

// fill keeps at least 2,000 tasks in the worker's queue.
func (s *stream) fill(ctx context.Context) error {
	tasks := make([]tusk.NewTask, 1000)
	for i := range tasks {
		tasks[i] = tusk.NewTask{Args: pauseArgs{}}
	}
	for stored := int64(0); ctx.Err() == nil; {
		if stored-s.done.Load() > 2000 {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if _, err := s.client.EnqueueMany(ctx, tasks); err != nil && ctx.Err() == nil {
			return err
		}
		stored += int64(len(tasks))
	}
	return nil
}

// speed returns how many tasks per second the worker completes.
func (s *stream) speed(during time.Duration) float64 {
	before := s.done.Load()
	time.Sleep(during)
	return float64(s.done.Load()-before) / during.Seconds()
}

// operate changes all waiting tasks with an operation, which the leader carries out.
func (s *stream) operate(change tusk.Change) tusk.Operation {
	s.t.Helper()
	o, err := s.client.StartOperation(s.t.Context(), tusk.Filter{Kinds: []string{"waits"}}, change, nil)
	for err == nil && !o.Ended() {
		time.Sleep(20 * time.Millisecond)
		o, err = s.client.Operation(s.t.Context(), o.ID)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return o
}
