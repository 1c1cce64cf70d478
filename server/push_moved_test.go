package server_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/server/push"
)

func TestAnEndpointThatMovedWhileNoTaskCameIsCalledWhereItIs(t *testing.T) {
	s := start(t, allowLoopback)
	var secret atomic.Value
	var before, after atomic.Int32
	counted := func(n *atomic.Int32) string {
		return listen(t, func() string { return secret.Load().(string) },
			func(http.ResponseWriter, *http.Request, push.Message) { n.Add(1) }).URL
	}
	here, there := counted(&before), counted(&after)
	secret.Store(s.register("hooks", here, nil))
	s.awaitState(s.enqueue(object{"kind": "k", "queue": "hooks"}), "completed")
	time.Sleep(time.Second) // the sender waits for tasks
	s.register("hooks", there, nil)
	time.Sleep(3 * time.Second) // a change takes 2 s
	s.awaitState(s.enqueue(object{"kind": "k", "queue": "hooks"}), "completed")
	if before.Load() != 1 || after.Load() != 1 {
		t.Errorf("where it was: %d calls, want the first; where it is: %d", before.Load(), after.Load())
	}
}
