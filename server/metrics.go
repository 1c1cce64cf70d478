package server

import "net/http"

// metrics passes a scrape to the configured handler. This package knows nothing about telemetry.
func metrics(c *call, _ struct{}) (nothing, error) {
	if c.config.Metrics == nil {
		return nothing{}, problem(http.StatusNotFound, "not_found", "this server tells no metrics")
	}
	c.config.Metrics.ServeHTTP(c.w, c.r)
	return nothing{}, nil
}
