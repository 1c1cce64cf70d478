package push

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/herald"
	"github.com/tuskqueue/tusk/store/memory"
)

func failed(at time.Time, why string) herald.Delivery { return herald.Delivery{Failed: at, Error: why} }

func stateOf(t *testing.T, book *Book) herald.Delivery {
	t.Helper()
	e, err := book.Get(t.Context(), "q")
	if err != nil {
		t.Fatal(err)
	}
	return e.State
}

func TestAFailureIsStoredForAllToSee(t *testing.T) {
	s := memory.New()
	elsewhere, err := NewBook(s, nil, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	e := Endpoint{Queue: "q", URL: gone.URL + "/canary?canary=1"}
	if _, _, err := elsewhere.Put(t.Context(), e, "ada"); err != nil {
		t.Fatal(err)
	}
	client, _ := serve(t, s, nil)
	enqueue(t, client, 1)
	eventually(t, "another process knows", func() bool {
		state := stateOf(t, elsewhere)
		if strings.Contains(state.Error, "canary") {
			t.Errorf("the error has the URL: %s", state.Error)
		}
		return state.Fails() && strings.Contains(state.Error, "refused")
	})
}

// Another process may have failed before, by a clock that is ahead.
func TestAFailureIsOverWhenTheEndpointAnswers(t *testing.T) {
	s := memory.New()
	book, err := NewBook(s, nil, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer receiver.Close()
	if _, _, err := book.Put(t.Context(), Endpoint{Queue: "q", URL: receiver.URL}, "ada"); err != nil {
		t.Fatal(err)
	}
	if err := book.note(t.Context(), "q", receiver.URL, failed(time.Now().Add(time.Hour), "gone")); err != nil {
		t.Fatal(err)
	}
	client, _ := serve(t, s, nil)
	enqueue(t, client, 1)
	eventually(t, "the failure is over", func() bool {
		state := stateOf(t, book)
		return !state.Fails() && state.Error == "gone"
	})
	if err := book.Remove(t.Context(), "q"); err != nil {
		t.Fatal(err)
	}
	if err := book.note(t.Context(), "q", receiver.URL, failed(time.Now(), "late")); err != nil {
		t.Fatal(err)
	}
	if states, err := herald.Endpoints(t.Context(), s); err != nil || len(states) > 0 {
		t.Errorf("the state outlives its endpoint: %v, %v", states, err)
	}
}

func TestTheLatestNoteDecidesNotTheClocks(t *testing.T) {
	book, err := NewBook(memory.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	const url = "https://app.example.com/"
	if _, _, err := book.Put(t.Context(), Endpoint{Queue: "q", URL: url}, "ada"); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for i, one := range []struct {
		note  herald.Delivery
		fails bool
	}{
		{failed(now, "gone"), true},
		{herald.Delivery{Arrived: now.Add(time.Minute)}, false}, // by a clock that is ahead
		{failed(now.Add(time.Second), "gone again"), true},
		{herald.Delivery{Arrived: now.Add(-time.Minute)}, false}, // by a clock that is behind
	} {
		if err := book.note(t.Context(), "q", url, one.note); err != nil {
			t.Fatal(err)
		}
		if state := stateOf(t, book); state.Fails() != one.fails {
			t.Errorf("after note %d: %+v", i+1, state)
		}
	}
}

func TestACallToAFormerURLSaysNothingOfTheNewOne(t *testing.T) {
	book, err := NewBook(memory.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	const former, url = "https://old.example.com/", "https://new.example.com/"
	if _, _, err := book.Put(t.Context(), Endpoint{Queue: "q", URL: url}, "ada"); err != nil {
		t.Fatal(err)
	}
	if err := book.note(t.Context(), "q", former, failed(time.Now(), "gone")); err != nil {
		t.Fatal(err)
	}
	if state := stateOf(t, book); !state.Failed.IsZero() {
		t.Errorf("it has the failure of the former URL: %+v", state)
	}
	if err := book.note(t.Context(), "q", url, failed(time.Now(), "gone")); err != nil {
		t.Fatal(err)
	}
	if err := book.note(t.Context(), "q", former, herald.Delivery{Arrived: time.Now().Add(time.Second)}); err != nil {
		t.Fatal(err)
	}
	if state := stateOf(t, book); !state.Fails() {
		t.Errorf("an answer of the former URL ends the failure: %+v", state)
	}
	s := &sender{Runner: New(book, nil, slog.New(slog.DiscardHandler)), wake: make(chan struct{}, 1)}
	s.become(document{Endpoint: Endpoint{Queue: "q", URL: url}})
	s.unheard(former, "gone")
	s.heard(former, time.Minute, "busy")
	if s.trouble != "" || s.news || !s.until.IsZero() {
		t.Errorf("a call to the former URL pauses the new one: %q until %v", s.trouble, s.until)
	}
}

func TestAnEndpointThatMovesIsCalledAtOnce(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer receiver.Close()
	client, r := serve(t, memory.New(), nil)
	r.firstPause = lastPause // longer than the test, however slow
	if _, _, err := r.book.Put(t.Context(), Endpoint{Queue: "q", URL: gone.URL}, "ada"); err != nil {
		t.Fatal(err)
	}
	enqueue(t, client, 1)
	eventually(t, "it pauses", func() bool { return r.Status("q").Trouble != "" })
	if _, _, err := r.book.Put(t.Context(), Endpoint{Queue: "q", URL: receiver.URL}, "ada"); err != nil {
		t.Fatal(err)
	}
	enqueue(t, client, 1)
	eventually(t, "it is called where it is", func() bool { return inState(t, client, tusk.StateCompleted) > 0 })
}

func TestAStateThatCouldNotBeStoredIsStoredLater(t *testing.T) {
	s := &breakable{Store: memory.New()}
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer receiver.Close()
	book, err := NewBook(s, nil, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := book.Put(t.Context(), Endpoint{Queue: "q", URL: receiver.URL}, "ada"); err != nil {
		t.Fatal(err)
	}
	if err := book.note(t.Context(), "q", receiver.URL, failed(time.Now(), "gone")); err != nil {
		t.Fatal(err)
	}
	s.broken.Store(true)
	client, _ := serve(t, s, nil)
	enqueue(t, client, 1)
	eventually(t, "the answer could not be stored", func() bool { return s.refused.Load() > 0 })
	s.broken.Store(false)
	eventually(t, "a later call stores that the endpoint answers", func() bool {
		enqueue(t, client, 1)
		return !stateOf(t, book).Fails()
	})
}
