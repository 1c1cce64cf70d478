package server

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// Health is the response of the health checks.
type Health struct {
	Status  string `json:"status"`
	Archive string `json:"archive,omitempty" enum:"ok,behind,failing,away,unknown" doc:"status of the archive, as this server last saw it; absent: no archive"`
}

func healthz(c *call, _ struct{}) (Health, error) {
	return Health{Status: "ok", Archive: c.archiveState()}, nil
}

func readyz(c *call, _ struct{}) (Health, error) {
	if err := c.ready(); err != nil {
		c.log.Warn("not ready", "error", err)
		p := problemOf(err)
		if p.Code == "internal" {
			p = problem(http.StatusServiceUnavailable, "not_ready", "the database cannot be used; the log says why")
		}
		p.Status = http.StatusServiceUnavailable
		return Health{}, p
	}
	return Health{Status: "ok"}, nil
}

// readyFor is how long an answer of the database is valid. Anybody may ask without a login, so all requests share it.
const readyFor = time.Second

// readiness is the result of the latest check.
type readiness struct {
	looking sync.Mutex
	at      time.Time
	err     error
}

func (s *Server) ready() error {
	if s.closing.Load() {
		return shuttingDown()
	}
	r := &s.readiness
	r.looking.Lock()
	defer r.looking.Unlock()
	if time.Since(r.at) >= readyFor {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		r.err = s.look(ctx)
		r.at = time.Now()
	}
	return r.err
}

func shuttingDown() *Problem {
	return problem(http.StatusServiceUnavailable, "shutting_down", "the server is shutting down")
}

// look checks the database.
func (s *Server) look(ctx context.Context) error {
	if s.config.Ready != nil {
		return s.config.Ready(ctx)
	}
	_, err := s.client.Store().Workers(ctx)
	return err
}
