package telemetry_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
	"github.com/tuskqueue/tusk/telemetry"
)

// reads notes what is read from a store: the counts of queues, the workers, each kind of record.
type reads struct {
	*memory.Store
	mu   sync.Mutex
	what map[string]int
}

func (r *reads) note(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.what == nil {
		r.what = map[string]int{}
	}
	r.what[what]++
}

func (r *reads) Count(ctx context.Context) ([]store.Count, error) {
	r.note("counts")
	return r.Store.Count(ctx)
}

func (r *reads) Workers(ctx context.Context) ([]store.Worker, error) {
	r.note("workers")
	return r.Store.Workers(ctx)
}

func (r *reads) Records(ctx context.Context, f store.RecordFilter) ([]store.Record, error) {
	r.note("records of the kind " + f.Kind)
	return r.Store.Records(ctx, f)
}

func scrape(t *telemetry.Telemetry) string {
	w := httptest.NewRecorder()
	t.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

func TestLabelsAreBoundedAndScrapersShareWhatIsRead(t *testing.T) {
	s := &reads{Store: memory.New()}
	tell := telemetry.New()
	client, err := tusk.NewClient(tell.Wrap(s), &tusk.ClientConfig{Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	tell.Watch(client)
	const queues = telemetry.MaxQueues + 5
	tasks := make([]tusk.NewTask, queues)
	for i := range tasks {
		tasks[i] = tusk.NewTask{Args: tusk.RawArgs{Name: "k"}, Options: &tusk.Options{Queue: fmt.Sprintf("q%04d", i)}}
	}
	_, err = client.EnqueueMany(t.Context(), tasks)
	must(t, err)
	s.what = nil // forget what the enqueue read
	text := scrape(tell)
	for part, want := range map[string]int{
		"\ntusk_queue_oldest_seconds{":                               telemetry.MaxQueues + 1,
		`tusk_queue_tasks{queue="other",state="available"} 5` + "\n": 1,
		"\ntusk_enqueued_total{":                                     telemetry.MaxSeries + 1,
		fmt.Sprintf(`tusk_enqueued_total{queue="other",result="added"} %d`, queues-telemetry.MaxSeries) + "\n": 1,
		`tusk_call_seconds_count{call="enqueue"} 1` + "\n":                                                     1,
	} {
		if got := strings.Count(text, part); got != want {
			t.Errorf("%q comes %d times, want %d", part, got, want)
		}
	}
	for range 5 {
		scrape(tell)
	}
	for what, n := range s.what {
		if n != 1 {
			t.Errorf("six scrapes read the %s %d times, want once", what, n)
		}
	}
	if s.what["counts"] == 0 || s.what["workers"] == 0 {
		t.Errorf("six scrapes read %v", s.what)
	}
}

func TestAQuietWorkerCountsForNoQueue(t *testing.T) {
	s := memory.New()
	tell := telemetry.New()
	client, err := tusk.NewClient(tell.Wrap(s), &tusk.ClientConfig{Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	tell.Watch(client)
	tell.ReadEvery(time.Nanosecond)
	ids := []store.ID{tusk.NewID(), tusk.NewID()}
	for _, id := range ids {
		_, err := s.Extend(t.Context(), store.Beat{Worker: store.Worker{ID: id, Queues: []string{"mail"},
			Kinds: []string{"k"}, Concurrency: 3}, TTL: time.Hour})
		must(t, err)
	}
	must(t, client.QuietWorker(t.Context(), ids[0]))
	text := scrape(tell)
	for _, want := range []string{`tusk_queue_workers{queue="mail"} 1` + "\n", "\ntusk_workers 2\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q", want)
		}
	}
}

// stuck is a store that blocks counts of queues while it is held.
type stuck struct {
	*memory.Store
	held atomic.Pointer[chan struct{}]
}

func (s *stuck) Count(ctx context.Context) ([]store.Count, error) {
	if held := s.held.Load(); held != nil {
		<-*held
	}
	return s.Store.Count(ctx)
}

func TestADatabaseThatIsSlowHoldsUpNoScrape(t *testing.T) {
	s := &stuck{Store: memory.New()}
	tell := telemetry.New()
	client, err := tusk.NewClient(tell.Wrap(s), &tusk.ClientConfig{Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	tell.Watch(client)
	tell.ReadEvery(time.Nanosecond)
	enqueue := func() {
		_, err := client.Enqueue(t.Context(), tusk.RawArgs{Name: "k"}, nil)
		must(t, err)
	}
	const one, two = `tusk_queue_tasks{queue="default",state="available"} 1` + "\n",
		`tusk_queue_tasks{queue="default",state="available"} 2` + "\n"
	enqueue()
	if text := scrape(tell); !strings.Contains(text, one) || !strings.Contains(text, "\ntusk_read_age_seconds ") {
		t.Fatal("the first scrape does not tell of the queue")
	}
	held := make(chan struct{})
	s.held.Store(&held)
	enqueue()
	for range 3 {
		if text := scrape(tell); !strings.Contains(text, one) || !strings.Contains(text, "\ntusk_up 1\n") {
			t.Fatal("a scrape beside a slow database does not tell what was read before")
		}
	}
	s.held.Store(nil)
	close(held)
	for end := time.Now().Add(10 * time.Second); !strings.Contains(scrape(tell), two); {
		if time.Now().After(end) {
			t.Fatal("what is told stays old")
		}
	}
}

// contended is a store of an engine that counts conflicts. Its other costs take a query, which no scrape may wait for.
type contended struct {
	*memory.Store
	t *testing.T
}

func (*contended) Conflicts() int64 { return 7 }

func (c *contended) Measure(context.Context) (store.Measures, error) {
	c.t.Error("a scrape measures")
	return store.Measures{}, nil
}

func TestConflictsAreCountedIfTheEngineCountsThem(t *testing.T) {
	for want, s := range map[string]store.Store{
		"\ntusk_conflicts_total 7\n": &contended{memory.New(), t},
		"":                           memory.New(),
	} {
		tell := telemetry.New()
		client, err := tusk.NewClient(tell.Wrap(s), &tusk.ClientConfig{Logger: slog.New(slog.DiscardHandler)})
		must(t, err)
		tell.Watch(client)
		text := scrape(tell)
		if !strings.Contains(text, want) || strings.Contains(text, "tusk_conflicts_total") != (want != "") {
			t.Errorf("no %q in %s", want, text)
		}
	}
}

// holds is a store that holds the first outcome of each call.
type holds struct{ *memory.Store }

func (h *holds) Finish(_ context.Context, outcomes []store.Outcome) ([]store.ID, error) {
	return []store.ID{outcomes[1].Task.ID}, &store.HeldError{Tasks: []store.ID{outcomes[0].Task.ID}}
}

func TestAHeldOutcomeIsNotCountedAndTheOthersAre(t *testing.T) {
	tell := telemetry.New()
	var outcomes []store.Outcome
	for range 5 {
		outcomes = append(outcomes, store.Outcome{Task: &store.Task{ID: tusk.NewID(), Kind: "k", Queue: "q"},
			State: store.Completed})
	}
	if _, err := tell.Wrap(&holds{memory.New()}).Finish(t.Context(), outcomes); err == nil {
		t.Error("no error")
	}
	for _, want := range []string{`state="completed"} 3` + "\n", "\ntusk_lost_total 1\n"} {
		if text := scrape(tell); !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
}
