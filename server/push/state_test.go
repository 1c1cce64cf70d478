package push

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/server/herald"
	"github.com/tuskqueue/tusk/store/memory"
)

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
		e, err := elsewhere.Get(t.Context(), "q")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(e.State.Error, "canary") {
			t.Errorf("the error has the URL: %s", e.State.Error)
		}
		return e.State.Fails() && strings.Contains(e.State.Error, "refused")
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
	if err := book.note(t.Context(), "q", herald.Delivery{Failed: time.Now().Add(time.Hour), Error: "gone"}); err != nil {
		t.Fatal(err)
	}
	client, _ := serve(t, s, nil)
	enqueue(t, client, 1)
	eventually(t, "the failure is over", func() bool {
		e, err := book.Get(t.Context(), "q")
		if err != nil {
			t.Fatal(err)
		}
		return !e.State.Fails() && e.State.Error == "gone"
	})
	if err := book.Remove(t.Context(), "q"); err != nil {
		t.Fatal(err)
	}
	if err := book.note(t.Context(), "q", herald.Delivery{Failed: time.Now(), Error: "late"}); err != nil {
		t.Fatal(err)
	}
	if states, err := herald.Endpoints(t.Context(), s); err != nil || len(states) > 0 {
		t.Errorf("the state outlives its endpoint: %v, %v", states, err)
	}
}
