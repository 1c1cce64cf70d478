package telemetry_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
	"github.com/tuskqueue/tusk/telemetry"
)

// reads counts how often the queues of a store are counted.
type reads struct {
	*memory.Store
	n atomic.Int64
}

func (r *reads) Count(ctx context.Context) ([]store.Count, error) {
	r.n.Add(1)
	return r.Store.Count(ctx)
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
	if n := s.n.Load(); n != 1 {
		t.Errorf("six scrapes read the database %d times, want once", n)
	}
}

// stuck is a store whose queues are not counted while it is held.
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
	const one, two = `tusk_queue_tasks{queue="default",state="available"} 1` + "\n", `tusk_queue_tasks{queue="default",state="available"} 2` + "\n"
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
