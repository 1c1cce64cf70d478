package ledgers_test

import (
	"bytes"
	"context"
	"net"
	"net/url"
	"testing"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
)

// lag is a proxy before a server. It holds back one request that contains a word, ends the sender's connection, and
// passes the request on later, as a kernel does once the network is back.
type lag struct {
	word, server string
	kept, late   chan struct{} // closed when it has the request, and when it may pass it on
	over         chan struct{} // closed when the server has answered
}

// lagging starts a lag before the server of a DSN. It returns the DSN of the lag.
func lagging(t *testing.T, dsn, word string) (*lag, string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	l := &lag{word: word, server: u.Host, kept: make(chan struct{}), late: make(chan struct{}), over: make(chan struct{})}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go l.serve(client)
		}
	}()
	u.Host = listener.Addr().String()
	return l, u.String()
}

func (l *lag) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", l.server)
	if err != nil {
		return
	}
	defer server.Close()
	answers := make(chan bool, 100)
	go func() {
		defer close(answers)
		defer client.Close()
		buffer := make([]byte, 64<<10)
		for {
			n, err := server.Read(buffer)
			if err != nil {
				return
			}
			_, _ = client.Write(buffer[:n])
			select {
			case answers <- true:
			default:
			}
		}
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			return
		}
		keeps := bytes.Contains(buffer[:n], []byte(l.word))
		if keeps {
			close(l.kept)
			client.Close()
			<-l.late
			for len(answers) > 0 {
				<-answers
			}
		}
		if _, err := server.Write(buffer[:n]); keeps {
			<-answers
			close(l.over)
			return
		} else if err != nil {
			return
		}
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
	close(l.late)
	<-l.over
	if tasks := claim(t, leader, worker(t, leader), 2*sent); len(tasks) != sent {
		t.Errorf("of %d tasks %d can be claimed", sent, len(tasks))
	}
}
