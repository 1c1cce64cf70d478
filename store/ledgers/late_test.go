package ledgers_test

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
	"github.com/tuskqueue/tusk/store/storetest/wires"
)

// lag holds back one request that contains a word, ends the sender's connection, and passes the request on later, as a
// kernel does once the network is back.
type lag struct {
	word string
	kept chan struct{} // closed when it has the request
	late chan struct{} // closed by goOn
	goOn func()        // makes it pass the request on
	over chan struct{} // closed when the server has answered
}

// lagging starts a lag before the server of a DSN. It returns the DSN of the lag.
func lagging(t *testing.T, dsn, word string) (*lag, string) {
	t.Helper()
	l := &lag{word: word, kept: make(chan struct{}), late: make(chan struct{}), over: make(chan struct{})}
	l.goOn = sync.OnceFunc(func() { close(l.late) })
	_, through := wires.Start(t, dsn, l.open)
	t.Cleanup(l.goOn)
	return l, through
}

func (l *lag) open(w *wires.Wire) wires.Pass {
	var sent atomic.Bool
	answered := sync.OnceFunc(func() { close(l.over) })
	return func(piece []byte, up bool) ([]byte, bool) {
		if !up {
			if sent.Load() {
				answered()
			}
			return piece, true
		}
		if !bytes.Contains(piece, []byte(l.word)) {
			return piece, true
		}
		close(l.kept)
		w.Client.Close()
		<-l.late
		sent.Store(true)
		if _, err := w.Server.Write(piece); err == nil { // if the server has not ended its process meanwhile
			select { // it has to work on the request before its end is closed
			case <-l.over:
			case <-time.After(10 * time.Second):
			}
		}
		answered()
		return nil, false
	}
}

// The network fails while a task is in transit to a server, and the request arrives after everybody has found that it
// did not arrive. The task runs once.
func TestAnEnqueueThatArrivesLateIsStoredOnce(t *testing.T) {
	_, dsns := servers(t, 2)
	if err := divide(2, dsns...); err != nil {
		t.Fatal(err)
	}
	leader := open(t, dsns...)
	l, through := lagging(t, dsns[1], "kept-back")
	s := open(t, dsns[0], through)
	ctx := context.Background()
	term := lead(t, leader)
	sent := 0
	for kept := false; !kept; sent++ {
		add(t, s, newTask(func(n *store.NewTask) { n.Kind = "kept-back" })) // the lag keeps the first for its server
		select {
		case <-l.kept:
			kept = true
		default:
		}
	}
	if n, err := ledgers.CountIn(ctx, leader, 0, store.Filter{Queues: []string{"tusk.letters"}}); err != nil || n != 1 {
		t.Fatalf("%d letters, %v", n, err)
	}
	eventually(t, "the letter is resolved", func() bool {
		if _, err := leader.Admit(ctx, term, 1000); err != nil {
			t.Fatal(err)
		}
		n, err := ledgers.CountIn(ctx, leader, 0, store.Filter{Queues: []string{"tusk.letters"}})
		return err == nil && n == 0
	})
	l.goOn()
	<-l.over
	if tasks := claim(t, leader, worker(t, leader), 2*sent); len(tasks) != sent {
		t.Errorf("of %d tasks %d can be claimed", sent, len(tasks))
	}
}
