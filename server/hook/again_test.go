package hook

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/notify/notifytest"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// samePage returns the same ends every time.
type samePage struct{ store.Ends }

func (p samePage) Follow(context.Context, bool) (string, error) { return "1", nil }
func (p samePage) Forget(context.Context, string) error         { return nil }
func (p samePage) Ended(_ context.Context, cursor string, _ int) (store.Ends, error) {
	if cursor == p.Cursor {
		return store.Ends{Cursor: cursor}, nil
	}
	return p.Ends, nil
}

// teller returns a runner, and a hook for all completed tasks whose receiver responds with answer.
func teller(t *testing.T, answer func(Message) int) (*Runner, *document) {
	t.Helper()
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m Message
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			t.Error(err)
		}
		w.WriteHeader(answer(m))
	}))
	t.Cleanup(receiver.Close)
	d := &document{Hook: Hook{Name: "a", URL: receiver.URL, Events: []string{Completed}, Keep: time.Hour},
		Secret: "whsec_AAAA"}
	return New(NewBook(memory.New(), nil, notifytest.Sender(t)), slog.New(slog.DiscardHandler), 0, 0), d
}

func TestWhatIsDroppedIsCountedOnceHoweverOftenTheRestIsTriedAgain(t *testing.T) {
	answers := http.StatusServiceUnavailable
	r, d := teller(t, func(Message) int { return answers })
	now := time.Now()
	h := samePage{store.Ends{Cursor: "2", Missed: 5, Ends: []store.End{
		{Task: tusk.NewID(), State: store.Completed, At: now.Add(-2 * time.Hour)},
		{Task: tusk.NewID(), State: store.Completed, At: now}}}}
	s := State{Cursor: "1"}
	for range 4 {
		now = now.Add(10 * time.Minute)
		if err := r.tell(t.Context(), h, d, &s, now, func() bool { return true }); err != nil {
			t.Fatal(err)
		}
	}
	answers = http.StatusOK
	if err := r.tell(t.Context(), h, d, &s, now.Add(10*time.Minute), func() bool { return true }); err != nil {
		t.Fatal(err)
	}
	if s.Dropped != 6 || s.Count != 1 || s.Cursor != "2" {
		t.Errorf("one event was dropped and five were missed: %+v", s)
	}
}

func TestWhatHasArrivedIsNotSentAgainWhenTheRestIs(t *testing.T) {
	calls, arrived := 0, map[string]int{}
	r, d := teller(t, func(m Message) int {
		if calls++; calls%2 == 0 {
			return http.StatusServiceUnavailable
		}
		for _, e := range m.Events {
			arrived[e.Task]++
		}
		return http.StatusOK
	})
	now := time.Now()
	var ends []store.End
	for i := range 5*most + 7 {
		e := store.End{Task: tusk.NewID(), State: store.Completed, At: now}
		if i%2 == 0 {
			e.State = store.Discarded // this hook does not want these
		}
		ends = append(ends, e)
	}
	h, s := samePage{store.Ends{Cursor: "2", Ends: ends}}, State{Cursor: "1"}
	for s.Cursor == "1" && calls < 20 {
		now = now.Add(10 * time.Minute)
		d.Keep = 24 * time.Hour
		if err := r.tell(t.Context(), h, d, &s, now, func() bool { return true }); err != nil {
			t.Fatal(err)
		}
	}
	if len(arrived) != len(ends)/2 || s.Count != int64(len(arrived)) || s.Done != 0 {
		t.Errorf("%d of %d arrived in %d calls: %+v", len(arrived), len(ends)/2, calls, s)
	}
	for id, n := range arrived {
		if n != 1 {
			t.Fatalf("%s arrived %d times", id, n)
		}
	}
}

// All hooks wait for a round to end, so a slow receiver gets what is left of a page in later rounds.
func TestAPageOfASlowReceiverDoesNotHoldUpARound(t *testing.T) {
	calls, arrived := 0, map[string]int{}
	r, d := teller(t, func(m Message) int {
		calls++
		for _, e := range m.Events {
			arrived[e.Task]++
		}
		return http.StatusOK
	})
	now := time.Now()
	var ends []store.End
	for range 2*most + 7 {
		ends = append(ends, store.End{Task: tusk.NewID(), State: store.Completed, At: now})
	}
	h, s := samePage{store.Ends{Cursor: "2", Ends: ends}}, State{Cursor: "1"}
	for round := 1; round <= 3; round++ {
		if err := r.tell(t.Context(), h, d, &s, now, func() bool { return calls < round }); err != nil {
			t.Fatal(err)
		}
		if calls != round || len(arrived) != min(round*most, len(ends)) || s.Count != int64(len(arrived)) {
			t.Errorf("round %d: %d events arrived in %d calls: %+v", round, len(arrived), calls, s)
		}
	}
	if s.Cursor != "2" || s.Done != 0 {
		t.Errorf("at the end: %+v", s)
	}
	for id, n := range arrived {
		if n != 1 {
			t.Fatalf("%s arrived %d times", id, n)
		}
	}
}
