package server

import (
	"context"
	"net/http"
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
	ctx, cancel := context.WithTimeout(c.r.Context(), 5*time.Second)
	defer cancel()
	err := c.ready(ctx)
	if err != nil {
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

func (s *Server) ready(ctx context.Context) error {
	if s.closing.Load() {
		return problem(http.StatusServiceUnavailable, "shutting_down", "the server is shutting down")
	}
	if s.config.Ready != nil {
		return s.config.Ready(ctx)
	}
	_, err := s.client.Store().Workers(ctx)
	return err
}
