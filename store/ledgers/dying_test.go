package ledgers_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
	"github.com/tuskqueue/tusk/store/storetest/wires"
)

// A server is killed, and processes that serve clients outlive it for a while. It takes no new connections, so it is
// about to be lost: it gets no tasks that would wait there until it is back.
func TestAServerThatTakesNoConnectionsIsAway(t *testing.T) {
	_, dsns := servers(t, 2)
	if err := divide(2, dsns...); err != nil {
		t.Fatal(err)
	}
	var dying atomic.Bool
	_, through := wires.Start(t, dsns[1], func(w *wires.Wire) wires.Pass {
		if dying.Load() {
			w.Cut()
		}
		return wires.All(w)
	})
	s := open(t, dsns[0], through)
	add(t, s, keyedInto(s, 1, nil)) // opens a connection
	dying.Store(true)
	ledgers.Break(s, 1)
	eventually(t, "it is away", func() bool {
		_, err := s.Enqueue(context.Background(), []store.NewTask{keyedInto(s, 1, nil)})
		return errors.Is(err, store.ErrUnavailable) && errors.Is(err, store.ErrNotCommitted)
	})
	time.Sleep(time.Second)
	if _, err := s.Enqueue(context.Background(), []store.NewTask{keyedInto(s, 1, nil)}); err == nil {
		t.Error("it is back although it takes no connections")
	}
	dying.Store(false)
	eventually(t, "it is back", func() bool {
		_, err := s.Enqueue(context.Background(), []store.NewTask{keyedInto(s, 1, nil)})
		return err == nil
	})
}
