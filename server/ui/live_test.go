package ui

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/store/memory"
)

// The stream of a watched page looks at its task in the visitor's turn, and holds no place in between.
func TestEachLookOfAStreamTakesItsTurn(t *testing.T) {
	client := newClient(t, memory.New())
	task, err := client.Enqueue(t.Context(), tusk.RawArgs{Name: "k", JSON: []byte("{}")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var inside atomic.Int32
	turns := make(chan struct{}, 100)
	h, err := New(client, Options{
		Who: func(*http.Request) (access.Identity, error) {
			return access.Identity{ID: "ada", Name: "ada", Role: access.Viewer}, nil
		},
		Turn: func(_ context.Context, who access.Identity, _ Route) (func(), error) {
			if n := inside.Add(1); n != 1 || who.ID != "ada" {
				t.Errorf("%d places of %q for one stream", n, who.ID)
			}
			turns <- struct{}{}
			return func() { inside.Add(-1) }, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(h)
	defer s.Close()
	defer s.CloseClientConnections()
	a, err := http.Get(s.URL + "/tasks/" + task.ID.String() + "/live")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	if line, err := bufio.NewReader(a.Body).ReadString('\n'); err != nil || line != "data: changed\n" {
		t.Fatalf("%d %q %v", a.StatusCode, line, err)
	}
	for n := range 3 {
		select {
		case <-turns:
		case <-time.After(20 * time.Second):
			t.Fatalf("look %d took no place", n)
		}
	}
}
