package server_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tuskqueue/tusk/server"
)

func TestALivePageConnectsAgainAfterAnError(t *testing.T) {
	var refused, served atomic.Int64
	s := start(t, func(c *server.Config) {
		c.Dev = true
		c.Around = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasPrefix(r.URL.Path, "/live") {
					if refused.CompareAndSwap(0, 1) {
						http.Error(w, "busy", http.StatusServiceUnavailable)
						return
					}
					served.Add(1)
				}
				next.ServeHTTP(w, r)
			})
		}
	})
	s.enqueue(object{"kind": "k"})
	b := openBrowser(t, s.URL)
	b.open("/queues")
	eventually(t, func() bool { return refused.Load() == 1 && served.Load() > 0 })
}
