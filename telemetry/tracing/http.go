package tracing

import (
	"net/http"

	"go.opentelemetry.io/otel/propagation"
)

// Handler makes what requests enqueue part of their caller's trace, which the W3C header
// traceparent names.
func (t *Tracer) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("traceparent") != "" {
			r = r.WithContext(t.w3c.Extract(r.Context(), propagation.HeaderCarrier(r.Header)))
		}
		next.ServeHTTP(w, r)
	})
}
