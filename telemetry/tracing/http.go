package tracing

import (
	"net/http"

	"go.opentelemetry.io/otel/propagation"
)

// Handler makes the tasks that requests enqueue part of the caller's trace, as named by the
// W3C header traceparent.
func (t *Tracer) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("traceparent") != "" {
			r = r.WithContext(t.w3c.Extract(r.Context(), propagation.HeaderCarrier(r.Header)))
		}
		next.ServeHTTP(w, r)
	})
}
