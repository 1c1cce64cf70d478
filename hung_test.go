package tusk_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// deaf is a handler that ignores its context in the first run of each task.
type deaf struct {
	release chan struct{}
	seen    sync.Map
}

func (d *deaf) handleUntilReleased(_ context.Context, t *tusk.Task[count]) error {
	if _, again := d.seen.LoadOrStore(t.ID, true); again {
		return nil
	}
	<-d.release
	return nil
}

func newDeaf(s *shop, options ...tusk.HandlerOption) *deaf {
	d := &deaf{release: make(chan struct{})}
	tusk.Handle(s.mux, d.handleUntilReleased, options...)
	return d
}

func (s *shop) attempts(id tusk.ID) []store.Attempt { return s.get(id).Detail.Attempts }

// lockedText is a log that may be read while others write it.
type lockedText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedText) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// events counts a worker's events by kind until the returned function is called.
func events(w *tusk.Worker) (counts func() map[tusk.EventKind]int) {
	told, cancel := w.Subscribe()
	return func() map[tusk.EventKind]int {
		cancel()
		n := map[tusk.EventKind]int{}
		for e := range told {
			n[e.Kind]++
		}
		return n
	}
}

func TestHungHandlers(t *testing.T) {
	inBubble(t, "a timeout that is ignored ends the attempt after the grace, and another runs",
		func(t *testing.T, s *shop) {
			var log lockedText
			d := newDeaf(s, tusk.WithTimeout(2*time.Second))
			w, stop := s.work(&tusk.WorkerConfig{Concurrency: 1, MaxHung: -1, HungGrace: 3 * time.Second,
				Logger: slog.New(slog.NewTextHandler(&log, nil))})
			counts := events(w)
			id := s.enqueue(count{1}, nil)
			s.await(id, tusk.StateRunning)
			begun := time.Now()
			s.await(id, tusk.StateRetryable)
			if took := time.Since(begun); took < 4*time.Second || took > 6*time.Second || w.Hung() != 1 {
				t.Errorf("given up after %v, %d hang", took, w.Hung())
			}
			s.await(id, tusk.StateCompleted) // in the only slot
			time.Sleep(2 * time.Second)      // a heartbeat reports the hung handler
			if told, err := s.client.Workers(t.Context()); err != nil || len(told) != 1 || told[0].Hung != 1 {
				t.Errorf("%+v, %v, want a worker with one hung handler", told, err)
			}
			close(d.release)
			time.Sleep(time.Second)
			if w.Hung() != 0 {
				t.Errorf("%d hang after all have returned", w.Hung())
			}
			for n := range 3 { // there is exactly one slot
				s.await(s.enqueue(count{n}, nil), tusk.StateCompleted)
			}
			s.stop(stop)
			a := s.attempts(id)
			if len(a) != 2 || a[0].Error != "hung: timed out after 2s, and ignores the end of its context" ||
				!strings.Contains(a[0].Trace, "handleUntilReleased") {
				t.Errorf("attempts: %+v", a)
			}
			n := counts()
			if n[tusk.EventHung] != 1 || n[tusk.EventFailed] != 1 || n[tusk.EventCompleted] != 4 || n[tusk.EventLost] != 0 {
				t.Errorf("events: %v", n)
			}
			if text := log.String(); strings.Count(text, "a handler hangs") != 1 || strings.Count(text, "has returned") != 1 ||
				!strings.Contains(text, "handleUntilReleased") {
				t.Errorf("log: %s", text)
			}
		})
	inBubble(t, "a cancel that is ignored ends the task after the grace", func(t *testing.T, s *shop) {
		d := newDeaf(s)
		w, stop := s.work(&tusk.WorkerConfig{Concurrency: 1})
		id := s.enqueue(count{}, nil)
		s.await(id, tusk.StateRunning)
		if _, err := s.client.Cancel(context.Background(), id, "not needed"); err != nil {
			t.Fatal(err)
		}
		s.await(id, tusk.StateCancelled)
		if a := s.attempts(id); len(a) != 1 || !strings.HasPrefix(a[0].Error, "hung: ") || a[0].Trace == "" || w.Hung() != 1 {
			t.Errorf("%d hang, attempts: %+v", w.Hung(), a)
		}
		if err := s.client.Retry(context.Background(), id); err != nil {
			t.Error(err)
		}
		s.await(id, tusk.StateCompleted)
		close(d.release)
		s.stop(stop)
	})
	inBubble(t, "a handler without a sign of life is told to end, one with signs is not", func(t *testing.T, s *shop) {
		var cause atomic.Value
		tusk.Handle(s.mux, func(ctx context.Context, t *tusk.Task[count]) error {
			for n := range 12 {
				select {
				case <-ctx.Done():
					cause.Store(context.Cause(ctx))
					return ctx.Err()
				case <-time.After(time.Minute):
				}
				switch {
				case t.Args.N == 0:
				case n%3 == 0:
					t.Alive()
				case n%3 == 1:
					t.SetProgress(10, "")
				default:
					t.Logger().Info("on")
				}
			}
			return nil
		}, tusk.WithStallTimeout(time.Hour))
		_, stop := s.work(nil)
		limit := &tusk.Options{StallTimeout: 90 * time.Second, MaxAttempts: 1}
		quiet, lively := s.enqueue(count{0}, limit), s.enqueue(count{1}, limit)
		s.await(quiet, tusk.StateDiscarded)
		s.await(lively, tusk.StateCompleted)
		s.stop(stop)
		if err, _ := cause.Load().(error); !errors.Is(err, tusk.ErrStalled) {
			t.Errorf("cause %v", err)
		}
		if a := s.attempts(quiet); len(a) != 1 || a[0].Error != "no progress for 1m30s" || a[0].Trace != "" {
			t.Errorf("attempts: %+v", a)
		}
	})
	inBubble(t, "a stall that is ignored ends the attempt", func(t *testing.T, s *shop) {
		d := newDeaf(s, tusk.WithStallTimeout(time.Minute))
		_, stop := s.work(nil)
		id := s.enqueue(count{}, nil)
		s.await(id, tusk.StateCompleted)
		close(d.release)
		s.stop(stop)
		if a := s.attempts(id); len(a) != 2 ||
			a[0].Error != "hung: no progress for 1m0s, and ignores the end of its context" {
			t.Errorf("attempts: %+v", a)
		}
	})
	inBubble(t, "a worker with too many drains and says so", func(t *testing.T, s *shop) {
		d := newDeaf(s, tusk.WithTimeout(time.Second))
		w, err := tusk.NewWorker(s.client, s.mux, &tusk.WorkerConfig{Concurrency: 3, MaxHung: 2, NeverLead: true})
		if err != nil {
			t.Fatal(err)
		}
		first := s.enqueue(count{}, nil)
		done := make(chan error, 1)
		go func() { done <- w.Run(context.Background()) }()
		time.Sleep(time.Minute)
		if len(done) > 0 || w.Hung() != 1 {
			t.Fatalf("%d hang, and it has stopped: %v", w.Hung(), len(done) > 0)
		}
		second := s.enqueue(count{}, nil)
		if err := <-done; !errors.Is(err, tusk.ErrTooManyHung) {
			t.Errorf("ended with %v", err)
		}
		for _, id := range []tusk.ID{first, second} {
			if got := s.attempts(id); len(got) == 0 || !strings.HasPrefix(got[0].Error, "hung: ") {
				t.Errorf("%+v", got)
			}
		}
		close(d.release)
	})
	inBubble(t, "a batch that hangs is one hung handler, and all its tasks run again", func(t *testing.T, s *shop) {
		release := make(chan struct{})
		tusk.HandleBatch(s.mux, func(_ context.Context, tasks []*tusk.Task[count]) []error {
			if tasks[0].Attempt == 1 {
				<-release
			}
			return nil
		}, tusk.BatchOptions{Linger: time.Second}, tusk.WithTimeout(5*time.Second))
		w, stop := s.work(&tusk.WorkerConfig{Concurrency: 5, MaxHung: 2})
		var ids []tusk.ID
		for n := range 5 {
			ids = append(ids, s.enqueue(count{n}, nil))
		}
		time.Sleep(16 * time.Second)
		if w.Hung() != 1 {
			t.Errorf("%d hang, want 1", w.Hung())
		}
		for _, id := range ids {
			s.await(id, tusk.StateCompleted)
			if a := s.attempts(id); len(a) != 2 || !strings.HasPrefix(a[0].Error, "hung: timed out") || a[0].Trace == "" {
				t.Errorf("attempts: %+v", a)
			}
		}
		close(release)
		time.Sleep(time.Second)
		if w.Hung() != 0 {
			t.Errorf("%d hang after the return", w.Hung())
		}
		s.stop(stop)
	})
	inBubble(t, "a batch goes on when one of its tasks is cancelled, and is not hung", func(t *testing.T, s *shop) {
		tusk.HandleBatch(s.mux, func(context.Context, []*tusk.Task[count]) []error { time.Sleep(time.Minute); return nil },
			tusk.BatchOptions{Linger: time.Second})
		w, stop := s.work(nil)
		one, other := s.enqueue(count{1}, nil), s.enqueue(count{2}, nil)
		s.await(one, tusk.StateRunning)
		if _, err := s.client.Cancel(context.Background(), one, ""); err != nil {
			t.Fatal(err)
		}
		if task := s.await(one, tusk.StateCancelled); w.Hung() != 0 || s.attempts(one)[0].Error != "" {
			t.Errorf("%d hang; %+v", w.Hung(), task)
		}
		s.await(other, tusk.StateCompleted)
		s.stop(stop)
	})
}

// Calls that a hung handler makes after its attempt was taken are refused.
func TestAHungHandlerIsFencedOff(t *testing.T) {
	client, db, closeAll := inFile()
	defer closeAll()
	release, refused := make(chan struct{}), make(chan error, 1)
	mux := tusk.NewMux()
	tusk.Handle(mux, func(ctx context.Context, t *tusk.Task[count]) error {
		if t.Attempt > 1 {
			return t.RecordOutput("second")
		}
		<-release
		t.SetProgress(99, "late")
		_ = t.RecordOutput("first")
		tx, err := db.BeginTx(context.Background(), nil)
		if err != nil {
			refused <- err
			return err
		}
		defer tx.Rollback()
		err = t.CompleteTx(context.Background(), tx)
		refused <- err
		return err
	}, tusk.WithTimeout(50*time.Millisecond))
	w, err := tusk.NewWorker(client, mux, &tusk.WorkerConfig{Concurrency: 1, MaxHung: -1, HungGrace: 50 * time.Millisecond,
		Poll: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	r, err := client.Enqueue(ctx, count{}, &tusk.Options{Backoff: tusk.Backoff{Shape: "constant", Base: time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	for state := tusk.StateAvailable; state != tusk.StateCompleted; {
		select {
		case err := <-done:
			t.Fatal(err)
		case <-time.After(20 * time.Millisecond):
		}
		task, err := client.Get(ctx, r.ID)
		if err != nil {
			t.Fatal(err)
		}
		state = task.State
	}
	close(release)
	if err := <-refused; !errors.Is(err, tusk.ErrLeaseLost) {
		t.Errorf("CompleteTx of the hung handler: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	task, err := client.Get(context.Background(), r.ID)
	if err != nil || task.State != tusk.StateCompleted || len(task.Detail.Attempts) != 2 ||
		string(task.Detail.Output) != `"second"` ||
		task.Detail.Progress != nil && task.Detail.Progress.Percent == 99 {
		t.Errorf("%+v, %v", task, err)
	}
}
