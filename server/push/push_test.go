package push

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/sealtest"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// serve runs what sends to endpoints in one server, until the test ends.
func serve(t *testing.T, s store.Store, ring *tusk.KeyRing) (*tusk.Client, *Runner) {
	t.Helper()
	return serveLogged(t, s, ring, slog.New(slog.DiscardHandler))
}

func serveLogged(t *testing.T, s store.Store, ring *tusk.KeyRing, log *slog.Logger) (*tusk.Client, *Runner) {
	t.Helper()
	client, err := tusk.NewClient(s, &tusk.ClientConfig{Logger: log, KeyRing: ring})
	if err != nil {
		t.Fatal(err)
	}
	book, err := NewBook(s, ring, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	puller := client.NewPuller()
	r := New(book, puller, log)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{}, 2)
	go func() { _ = puller.Run(ctx); done <- struct{}{} }()
	go func() { r.Run(ctx); done <- struct{}{} }()
	t.Cleanup(func() { cancel(); <-done; <-done })
	return client, r
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not happen:", what)
		}
	}
}

func enqueue(t *testing.T, client *tusk.Client, n int) {
	t.Helper()
	for range n {
		_, err := client.Enqueue(t.Context(), tusk.RawArgs{Name: "k"}, &tusk.Options{Queue: "q", MaxAttempts: 1})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func inState(t *testing.T, client *tusk.Client, state tusk.State) int {
	t.Helper()
	tasks, err := client.List(t.Context(), tusk.Filter{States: []tusk.State{state}})
	if err != nil {
		t.Fatal(err)
	}
	return len(tasks)
}

func TestAServerThatCannotReadTheSecretLeavesTheTasksToOthers(t *testing.T) {
	var calls atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) }))
	defer receiver.Close()
	s := memory.New()
	book, err := NewBook(s, sealtest.Ring("key"), "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := book.Put(t.Context(), Endpoint{Queue: "q", URL: receiver.URL}, "ada"); err != nil {
		t.Fatal(err)
	}
	client, without := serve(t, s, nil)
	eventually(t, "the server says what is missing", func() bool { return without.Status("q").Trouble == unreadable })
	enqueue(t, client, 5)
	time.Sleep(2*refresh + 200*time.Millisecond) // it looks again, and must still take none
	if n := inState(t, client, tusk.StateAvailable); n != 5 || without.Status("q").Trouble != unreadable {
		t.Errorf("%d of 5 tasks wait for a server with the key; status: %+v", n, without.Status("q"))
	}
	serve(t, s, sealtest.Ring("key"))
	eventually(t, "the other server sends them", func() bool { return inState(t, client, tusk.StateCompleted) == 5 })
	if calls.Load() != 5 {
		t.Errorf("%d calls", calls.Load())
	}
}

func TestAPauseAlsoStopsAClaimThatAlreadyWaits(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"the endpoint asks for it": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3000")
			w.WriteHeader(http.StatusTooManyRequests)
		},
		"the endpoint is not reached": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int64
			begun, release := make(chan struct{}, 100), make(chan struct{})
			receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				calls.Add(1)
				begun <- struct{}{}
				<-release
				answer(w, r)
			}))
			t.Cleanup(receiver.Close)
			client, r := serve(t, memory.New(), nil)
			r.firstPause = lastPause // longer than the test, however slow
			if _, _, err := r.book.Put(t.Context(), Endpoint{Queue: "q", URL: receiver.URL}, "ada"); err != nil {
				t.Fatal(err)
			}
			enqueue(t, client, 1)
			<-begun
			time.Sleep(200 * time.Millisecond) // the next claim waits now
			close(release)
			eventually(t, "the endpoint is in trouble", func() bool { return r.Status("q").Trouble != "" })
			enqueue(t, client, 5)
			time.Sleep(500 * time.Millisecond)
			if n := inState(t, client, tusk.StateAvailable); calls.Load() != 1 || n != 5 {
				t.Errorf("in the pause, the endpoint was called %d times; %d of 5 tasks wait", calls.Load()-1, n)
			}
		})
	}
}

func TestTheLogSaysWhyNothingReachesAnEndpoint(t *testing.T) {
	s := memory.New()
	open, err := NewBook(s, nil, "localhost")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := open.Put(t.Context(), Endpoint{Queue: "q", URL: "http://localhost:1/"}, "ada"); err != nil {
		t.Fatal(err)
	}
	log := &lockedText{}
	client, _ := serveLogged(t, s, nil, slog.New(slog.NewTextHandler(log, nil)))
	enqueue(t, client, 1)
	eventually(t, "the log names the queue and the reason", func() bool {
		text := log.String()
		return strings.Contains(text, "queue=q") && strings.Contains(text, "not allowed")
	})
}

// lockedText keeps what several goroutines write.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
