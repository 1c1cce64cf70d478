package wires

import (
	"io"
	"net"
	"testing"
	"time"
)

// echo starts a server that sends back what it gets, and returns its URL.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return "tcp://" + l.Addr().String()
}

// say sends a text through wires, and returns the answer that comes within a second, and whether it came.
func say(t *testing.T, c net.Conn, text string) (string, error) {
	t.Helper()
	if _, err := c.Write([]byte(text)); err != nil {
		return "", err
	}
	if err := c.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, len(text))
	_, err := io.ReadFull(c, answer)
	return string(answer), err
}

func dial(t *testing.T, through string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", through[len("tcp://"):])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestWiresCarryUntilTheyAreBroken(t *testing.T) {
	ws, through := Start(t, echo(t), All)
	lives, dies := dial(t, through), dial(t, through)
	for _, c := range []net.Conn{lives, dies} {
		if answer, err := say(t, c, "hello"); answer != "hello" || err != nil {
			t.Fatal(answer, err)
		}
	}
	for _, w := range ws.Open() {
		if w.Client.RemoteAddr().String() == dies.LocalAddr().String() {
			w.Die()
		}
	}
	if _, err := say(t, dies, "hello"); err == nil || err == io.EOF {
		t.Errorf("a dead wire answers, or tells of its end: %v", err)
	}
	if answer, err := say(t, lives, "hello"); answer != "hello" || err != nil {
		t.Error(answer, err)
	}
	ws.Cut()
	if _, err := say(t, lives, "hello"); err == nil {
		t.Error("a wire that was cut answers")
	}
}

func TestAPassChangesWhatArrivesAndEndsWires(t *testing.T) {
	_, through := Start(t, echo(t), func(*Wire) Pass {
		return func(piece []byte, up bool) ([]byte, bool) {
			if up && string(piece) == "end" {
				return nil, false
			}
			if !up {
				return []byte("HELLO"), true
			}
			return piece, true
		}
	})
	c := dial(t, through)
	if answer, err := say(t, c, "hello"); answer != "HELLO" || err != nil {
		t.Error(answer, err)
	}
	if _, err := say(t, c, "end"); err != io.EOF {
		t.Errorf("the wire goes on: %v", err)
	}
}
