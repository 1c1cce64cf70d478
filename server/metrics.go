package server

import "net/http"

// metrics passes a scrape on to who knows: this package knows no telemetry.
func metrics(c *call, _ struct{}) (nothing, error) {
	if c.config.Metrics == nil {
		return nothing{}, problem(http.StatusNotFound, "not_found", "this server tells no metrics")
	}
	c.config.Metrics.ServeHTTP(c.w, c.r)
	return nothing{}, nil
}
