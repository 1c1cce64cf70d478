package server_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/push"
)

// The timeout of a task may be longer than any lease. The task is then handed over for the longest one.
func TestATaskWithALongTimeoutIsHandedOver(t *testing.T) {
	var log safeBuffer
	s := start(t, allowLoopback, func(c *server.Config) { c.Logger = log.logger() })
	var secret atomic.Value
	leases := make(chan string, 1)
	c := listen(t, func() string { return secret.Load().(string) },
		func(w http.ResponseWriter, _ *http.Request, m push.Message) {
			w.WriteHeader(http.StatusAccepted)
			leases <- m.Data.LeaseID
		})
	secret.Store(s.register("hooks", c.URL, nil))
	id := s.enqueue(object{"kind": "k", "queue": "hooks", "timeout": "13h"})
	lease := <-leases
	eventually(t, func() bool { // the call is over
		var e server.Endpoint
		s.do("GET", "/api/v1/endpoints/hooks", nil).want(t, 200, &e)
		return e.Running == 0 && !e.LastCall.IsZero()
	})
	if text := log.String(); strings.Contains(text, "hand over") {
		t.Error(text)
	}
	s.do("POST", "/api/v1/lease/complete", object{"lease_id": lease}).want(t, 200, nil)
	s.awaitState(id, "completed")
}
