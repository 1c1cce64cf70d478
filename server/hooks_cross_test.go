package server_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/hook"
	"github.com/tuskqueue/tusk/server/notify/notifytest"
	"github.com/tuskqueue/tusk/store"
)

// crossing does something just before the engine is told to keep no more ends.
type crossing struct {
	store.Store
	store.Historian
	before func()
}

func (c *crossing) Unwrap() store.Store { return c.Store }

func (c *crossing) Follow(ctx context.Context, on bool) (string, error) {
	if before := c.before; !on && before != nil {
		c.before = nil
		before()
	}
	return c.Historian.Follow(ctx, on)
}

// hooked is a client and the hooks of its store, with the tasks that each hook was told of.
type hooked struct {
	*httptest.Server
	t      *testing.T
	client *tusk.Client
	book   *hook.Book
	store  *crossing

	mu   sync.Mutex
	told map[string][]string
	at   func(hook string) // called when a hook is told
}

func newHooked(t *testing.T, s store.Store) *hooked {
	historian, ok := store.As[store.Historian](s)
	if !ok {
		t.Fatal("no historian")
	}
	h := &hooked{t: t, store: &crossing{Store: s, Historian: historian}, told: map[string][]string{}}
	h.client = newClient(t, h.store)
	h.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var m hook.Message
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			t.Error(err)
		}
		h.mu.Lock()
		for _, e := range m.Events {
			h.told[m.Hook] = append(h.told[m.Hook], e.Task)
		}
		h.mu.Unlock()
		if h.at != nil {
			h.at(m.Hook)
		}
	}))
	t.Cleanup(h.Close)
	h.book = hook.NewBook(h.store, nil, notifytest.Sender(t))
	return h
}

func (h *hooked) put(name string) {
	_, _, err := h.book.Put(context.Background(), hook.Hook{Name: name, URL: h.URL, Events: hook.Events()}, "test")
	if err != nil {
		h.t.Error(err)
	}
}

// end ends a task and returns its id.
func (h *hooked) end() string {
	e, err := h.client.Enqueue(context.Background(), tusk.RawArgs{Name: "k"}, nil)
	if err == nil {
		_, err = h.client.Cancel(context.Background(), e.ID, "")
	}
	if err != nil {
		h.t.Error(err)
	}
	return e.ID.String()
}

func (h *hooked) isTold(hook, task string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.told[hook], task)
}

// run tells the hooks, beside a worker that leads: on MySQL the leader collects the ends.
func (h *hooked) run() {
	mux := tusk.NewMux()
	tusk.Handle(mux, func(context.Context, *tusk.Task[numbered]) error { return nil })
	worker, err := tusk.NewWorker(h.client, mux, &tusk.WorkerConfig{Queues: []string{"none"}, Logger: discard()})
	if err != nil {
		h.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var over sync.WaitGroup
	over.Go(func() { hook.New(h.book, discard(), 20*time.Millisecond, 0).Run(ctx) })
	over.Go(func() {
		if err := worker.Run(ctx); err != nil {
			h.t.Error(err)
		}
	})
	h.t.Cleanup(func() { stop(); over.Wait() })
}

func TestAHookThatIsCreatedWhileAnotherIsToldMissesNothing(t *testing.T) {
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			h := newHooked(t, open(t))
			var once sync.Once
			created := make(chan string, 1)
			h.at = func(string) {
				once.Do(func() {
					h.put("late")
					created <- h.end()
				})
			}
			h.put("early")
			h.end()
			h.run()
			var task string
			eventually(t, func() bool {
				select {
				case task = <-created:
				default:
				}
				return task != "" && h.isTold("early", task) && h.isTold("late", task)
			})
		})
	}
}

func TestAHookThatIsCreatedWhileTheLastOneIsRemovedIsTold(t *testing.T) {
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			h := newHooked(t, open(t))
			h.put("old")
			h.store.before = func() { h.put("new") }
			if err := h.book.Remove(t.Context(), "old"); err != nil {
				t.Fatal(err)
			}
			h.run()
			task := h.end()
			eventually(t, func() bool { return h.isTold("new", task) })
		})
	}
}
