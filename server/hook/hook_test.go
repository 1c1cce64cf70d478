package hook

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/notify"
	"github.com/tuskqueue/tusk/server/notify/notifytest"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// No test may leave a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWhatCouldNotBeToldForTooLongIsDroppedAndCounted(t *testing.T) {
	answers := http.StatusServiceUnavailable
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(answers)
	}))
	t.Cleanup(receiver.Close)
	sender := notifytest.Sender(t)
	s := memory.New()
	r := New(NewBook(s, nil, sender), slog.New(slog.DiscardHandler), 0, 0)
	d := &document{Hook: Hook{Name: "a", URL: receiver.URL, Events: []string{Completed}, Keep: time.Hour},
		Secret: "whsec_AAAA"}
	now := time.Now()
	ends := []store.End{{Task: tusk.NewID(), State: store.Completed, At: now.Add(-2 * time.Hour)},
		{Task: tusk.NewID(), State: store.Completed, At: now},
		{Task: tusk.NewID(), State: store.Discarded, At: now}}
	state := State{}
	always := func() bool { return true }
	if _, err := r.deliver(t.Context(), d, &state, ends, now, always); err == nil || state.Count != 0 {
		t.Error(state, err)
	}
	answers = http.StatusOK
	state = State{}
	all, err := r.deliver(t.Context(), d, &state, ends, now, always)
	if err != nil || !all || state.Count != 1 || state.Dropped != 1 {
		t.Error(state, err)
	}
}

func TestAHookThatCannotBeIsRefused(t *testing.T) {
	sender, err := notify.New(nil, "", "")
	if err != nil {
		t.Fatal(err)
	}
	b := NewBook(memory.New(), nil, sender)
	for name, h := range map[string]Hook{
		"a name":           {Name: "A b", URL: "https://example.com"},
		"an event":         {Name: "a", URL: "https://example.com", Events: []string{"bad"}},
		"a queue":          {Name: "a", URL: "https://example.com", Queues: []string{"A b"}},
		"a moment":         {Name: "a", URL: "https://example.com", Keep: time.Second},
		"a month":          {Name: "a", URL: "https://example.com", Keep: 30 * 24 * time.Hour},
		"a private target": {Name: "a", URL: "https://127.0.0.1"},
	} {
		if _, _, err := b.Put(t.Context(), h, "test"); err == nil || errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
