package cli

import (
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	collectmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collecttraces "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// receiver receives OTLP over HTTP.
type receiver struct {
	*httptest.Server
	t *testing.T

	mu       sync.Mutex
	spans    map[string]*traces.Span // by name
	metrics  map[string]bool
	services map[string]bool
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{t: t, spans: map[string]*traces.Span{}, metrics: map[string]bool{}, services: map[string]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", func(_ http.ResponseWriter, request *http.Request) { r.takeTraces(request) })
	mux.HandleFunc("POST /v1/metrics", func(_ http.ResponseWriter, request *http.Request) { r.takeMetrics(request) })
	r.Server = httptest.NewServer(mux)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) takeTraces(request *http.Request) {
	var sent collecttraces.ExportTraceServiceRequest
	r.decode(request, &sent)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range sent.ResourceSpans {
		r.note(of.Resource)
		for _, scope := range of.ScopeSpans {
			for _, span := range scope.Spans {
				r.spans[span.Name] = span
			}
		}
	}
}

func (r *receiver) takeMetrics(request *http.Request) {
	var sent collectmetrics.ExportMetricsServiceRequest
	r.decode(request, &sent)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range sent.ResourceMetrics {
		r.note(of.Resource)
		for _, scope := range of.ScopeMetrics {
			for _, metric := range scope.Metrics {
				r.metrics[metric.Name] = true
			}
		}
	}
}

func (r *receiver) decode(request *http.Request, into proto.Message) {
	body, err := io.ReadAll(request.Body)
	if err == nil {
		err = proto.Unmarshal(body, into)
	}
	if err != nil {
		r.t.Errorf("%s: %v", request.URL, err)
	}
}

func (r *receiver) note(of *resource.Resource) {
	r.services[texts(of.Attributes)["service.name"]] = true
}

func texts(attributes []*common.KeyValue) map[string]string {
	all := map[string]string{}
	for _, a := range attributes {
		all[a.Key] = a.Value.GetStringValue()
	}
	return all
}

func TestDevSendsTracesAndMetricsWhereTheVariablesSay(t *testing.T) {
	r := newReceiver(t)
	sh := newShell(t)
	sh.env = append(sh.env, "OTEL_EXPORTER_OTLP_ENDPOINT="+r.URL, "OTEL_SERVICE_NAME=shop", "OTEL_BSP_SCHEDULE_DELAY=20",
		"OTEL_METRIC_EXPORT_INTERVAL=50")
	p := sh.start("dev", "--ephemeral", "--addr", "127.0.0.1:0")
	const caller, trace = "00f067aa0ba902b7", "4bf92f3577b34da6a3ce929d0e0e4736"
	post(t, p.await(`(http://127\.0\.0\.1:\d+)/`)+"/api/v1/tasks", `{"kind":"echo","args":{"n":1}}`,
		map[string]string{"traceparent": "00-" + trace + "-" + caller + "-01"})
	eventually(t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.spans["send default"] != nil && r.spans["process default"] != nil && r.metrics["tusk_finished_total"] &&
			r.metrics["tusk_workers"]
	}, func() string {
		r.mu.Lock()
		defer r.mu.Unlock()
		return fmt.Sprintf("spans %q, metrics %q\n%s", slices.Sorted(maps.Keys(r.spans)), slices.Sorted(maps.Keys(r.metrics)),
			p.log())
	})
	p.signal(os.Interrupt)
	if code := p.status(); code != 0 {
		t.Errorf("status %d: %s", code, p.log())
	}
	send, process := r.spans["send default"], r.spans["process default"]
	if hex.EncodeToString(send.TraceId) != trace || hex.EncodeToString(send.ParentSpanId) != caller ||
		string(process.ParentSpanId) != string(send.SpanId) ||
		string(process.TraceId) != string(send.TraceId) {
		t.Errorf("the caller's span %s of %s, then %v, then %v: want a chain", caller, trace, send, process)
	}
	if got := texts(process.Attributes); got["messaging.system"] != "tusk" ||
		got["messaging.destination.name"] != "default" || got["tusk.task.kind"] != "echo" {
		t.Errorf("the span has %v", got)
	}
	if !maps.Equal(r.services, map[string]bool{"shop": true}) {
		t.Errorf("services are %v, want shop alone", r.services)
	}
}

func TestNothingIsSentUnlessTheVariablesSaySo(t *testing.T) {
	receiver := newReceiver(t)
	for name, c := range map[string]struct {
		env             map[string]string
		traces, metrics bool
	}{
		"nothing set":  {},
		"a name alone": {env: map[string]string{"OTEL_SERVICE_NAME": "shop"}},
		"an endpoint": {env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.URL}, traces: true,
			metrics: true},
		"traces' own": {env: map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": receiver.URL}, traces: true},
		"no metrics": {env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.URL,
			"OTEL_METRICS_EXPORTER": "none"}, traces: true},
		"an exporter alone": {env: map[string]string{"OTEL_TRACES_EXPORTER": "console"}, traces: true},
		"disabled":          {env: map[string]string{"OTEL_TRACES_EXPORTER": "console", "OTEL_SDK_DISABLED": "true"}},
	} {
		t.Run(name, func(t *testing.T) {
			for key, value := range c.env {
				t.Setenv(key, value)
			}
			app := newApp(strings.NewReader(""), io.Discard, io.Discard, nil)
			stop, err := app.startTelemetry(t.Context(), false)
			if err != nil {
				t.Fatal(err)
			}
			defer stop()
			if (app.tracer != nil) != c.traces || (app.metrics != nil) != c.metrics {
				t.Errorf("traces: %v, metrics: %v; want %v and %v", app.tracer != nil, app.metrics != nil, c.traces, c.metrics)
			}
		})
	}
}

func TestAnUnknownExporterIsAUsageError(t *testing.T) {
	t.Setenv("OTEL_TRACES_EXPORTER", "pigeon")
	app := newApp(strings.NewReader(""), io.Discard, io.Discard, nil)
	if _, err := app.startTelemetry(t.Context(), false); err == nil ||
		!strings.Contains(err.Error(), "OTEL_TRACES_EXPORTER=pigeon") {
		t.Errorf("the error is %v", err)
	}
}

// post sends JSON, which must be accepted.
func post(t *testing.T, url, body string, headers map[string]string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for name, value := range headers {
		r.Header.Set(name, value)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, _ := io.ReadAll(answer.Body); answer.StatusCode >= 300 {
		t.Fatalf("%s: %d %s", url, answer.StatusCode, text)
	}
}
