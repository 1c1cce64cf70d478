package alert

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/notify"
	"github.com/tuskqueue/tusk/server/notify/notifytest"
	"github.com/tuskqueue/tusk/server/sealtest"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// bookOf returns a book with the alert a, which has the given receivers.
func bookOf(t *testing.T, s store.Recorder, ring *tusk.KeyRing, to []notify.Receiver) *Book {
	t.Helper()
	book := NewBook(s, ring, notifytest.Sender(t))
	if _, _, err := book.Put(t.Context(), Rule{Name: "a", Kind: NoWorker, To: to}, "ada"); err != nil {
		t.Fatal(err)
	}
	return book
}

func TestAReceiverThatHangsDelaysNeitherOthersNorJudging(t *testing.T) {
	var mu sync.Mutex
	at := map[string]time.Time{} // when the first message of each alert arrived
	good := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		at[r.URL.Path] = time.Now()
	}))
	defer good.Close()
	hung := make(chan struct{})
	bad := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hung:
		case <-r.Context().Done():
		}
	}))
	defer bad.Close()
	defer close(hung)
	s, log := memory.New(), slog.New(slog.DiscardHandler)
	client := clientOf(t, s)
	if _, err := client.Enqueue(t.Context(), tusk.RawArgs{Name: "k"}, &tusk.Options{Queue: "q"}); err != nil {
		t.Fatal(err)
	}
	book := NewBook(s, nil, notifytest.Sender(t))
	put := func(name, url string) {
		t.Helper()
		_, _, err := book.Put(t.Context(), Rule{Name: name, Kind: NoWorker, Queue: "q",
			To: []notify.Receiver{{Via: notify.Webhook, Address: url}}}, "ada")
		if err != nil {
			t.Fatal(err)
		}
	}
	arrives := func(path string) {
		t.Helper()
		for deadline := time.Now().Add(within / 2); ; time.Sleep(10 * time.Millisecond) {
			mu.Lock()
			_, there := at[path]
			mu.Unlock()
			if there {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("nothing has arrived at %s", path)
			}
		}
	}
	for i := range 3 * abreast {
		put(fmt.Sprint("a", i), bad.URL)
	}
	put("z", good.URL+"/first")
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	work.Go(func() { New(book, client, log, 100*time.Millisecond, 0).Run(ctx) })
	arrives("/first")
	put("later", good.URL+"/later") // it is judged while the other receiver hangs
	arrives("/later")
}

func TestAReceiverThatCannotBeReadDelaysNoOther(t *testing.T) {
	arrived := 0
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived++ }))
	defer receiver.Close()
	s, log := memory.New(), slog.New(slog.DiscardHandler)
	client := clientOf(t, s)
	sender := bookOf(t, s, sealtest.Ring("key"),
		notify.Receivers([]string{receiver.URL + "/slack"}, nil, []string{"ops@example.com"})).sender
	read := func(ring *tusk.KeyRing) (*Runner, Alert) {
		book := NewBook(s, ring, sender)
		a, err := book.Get(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		return New(book, client, log, 0, 0), a
	}
	without, a := read(nil)
	owed := a.State.Test(&a.Rule, time.Now(), func() string { return "1" }).Owed
	if err := without.deliver(t.Context(), &a.Rule, owed[1]); !errors.Is(err, notify.ErrNoMail) {
		t.Errorf("the mail is not tried: %v", err)
	}
	if err := without.deliver(t.Context(), &a.Rule, owed[0]); !errors.Is(err, notify.ErrSealed) {
		t.Errorf("Slack without the key: %v", err)
	}
	// A server with the key sends what one without the key owes.
	with, a := read(sealtest.Ring("key"))
	if err := with.deliver(t.Context(), &a.Rule, owed[0]); err != nil || arrived != 1 {
		t.Errorf("Slack with the key: %v, %d messages arrived", err, arrived)
	}
	// A message whose receiver was removed has not arrived.
	a.To = a.To[1:]
	state := State{Owed: owed}
	state.settle(owed[0], time.Now(), with.deliver(t.Context(), &a.Rule, owed[0]))
	if !state.Arrived.IsZero() || len(state.Owed) != 1 || state.Error != "" {
		t.Errorf("a message to a receiver that is gone: %+v", state)
	}
}

func TestATestBehindAFailingMessageSaysWhy(t *testing.T) {
	book := bookOf(t, memory.New(), nil, notify.Receivers(nil, []string{"http://127.0.0.1:1"}, nil))
	before, err := book.Test(t.Context(), "a") // stands for a message that is owed
	if err != nil {
		t.Fatal(err)
	}
	id, err := book.Test(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if over, trouble, err := book.Arrived(t.Context(), "a", id); over || trouble != "" || err != nil {
		t.Errorf("nothing has failed yet: %v, %q, %v", over, trouble, err)
	}
	err = book.changeState(t.Context(), "a", func(s State) State {
		s.Owed[0].Message.Type = EventFiring
		s.settle(s.Owed[0], time.Now(), errors.New("no route"))
		return s
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{before, id} {
		if over, trouble, err := book.Arrived(t.Context(), "a", id); over || trouble != "no route" || err != nil {
			t.Errorf("%v, %q, %v", over, trouble, err)
		}
	}
}

func TestATestThatOneReceiverDidNotGetSaysSo(t *testing.T) {
	book := bookOf(t, memory.New(), nil,
		notify.Receivers(nil, []string{"http://127.0.0.1:1", "http://127.0.0.1:2"}, nil))
	for _, failed := range []error{errors.New("no route"), nil} {
		id, err := book.Test(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		err = book.changeState(t.Context(), "a", func(s State) State {
			s.settle(s.Owed[0], time.Now(), failed)
			s.settle(s.Owed[0], time.Now().Add(time.Second), nil) // the other receiver gets it
			return s
		})
		if err != nil {
			t.Fatal(err)
		}
		want := ""
		if failed != nil {
			want = failed.Error()
		}
		if over, trouble, err := book.Arrived(t.Context(), "a", id); !over || trouble != want || err != nil {
			t.Errorf("%v, %q, %v, want %q", over, trouble, err, want)
		}
	}
}
