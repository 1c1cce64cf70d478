package tracing_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/sqlite/sqlitefile"
	"github.com/tuskqueue/tusk/telemetry/tracing"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// traced is a client and a worker's mux on an SQLite file, and their spans.
type traced struct {
	t      *testing.T
	file   string
	client *tusk.Client
	mux    *tusk.Mux
	tracer *tracing.Tracer
	user   trace.Tracer
	spans  *tracetest.InMemoryExporter
}

func newTraced(t *testing.T, sampler sdk.Sampler) *traced {
	t.Helper()
	d := &traced{t: t, file: filepath.Join(t.TempDir(), "tusk.db"), mux: tusk.NewMux(),
		spans: tracetest.NewInMemoryExporter()}
	s, err := sqlitefile.Open(t.Context(), d.file)
	must(t, err)
	t.Cleanup(func() { s.Close() })
	_, err = s.Migrate(t.Context(), -1)
	must(t, err)
	provider := sdk.NewTracerProvider(sdk.WithSyncer(d.spans), sdk.WithSampler(sampler))
	d.tracer, d.user = tracing.New(provider), provider.Tracer("user")
	d.client, err = tusk.NewClient(d.tracer.Wrap(s), &tusk.ClientConfig{Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	return d
}

// work runs tasks until none of the queues has an unfinished one.
func (d *traced) work(queues ...string) {
	d.t.Helper()
	w, err := tusk.NewWorker(d.client, d.mux, &tusk.WorkerConfig{Queues: queues, Poll: 10 * time.Millisecond,
		Tracer: d.tracer})
	must(d.t, err)
	ctx, stop := context.WithTimeout(d.t.Context(), time.Minute)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	for ctx.Err() == nil && d.unfinished() > 0 {
		time.Sleep(5 * time.Millisecond)
	}
	if ctx.Err() != nil {
		d.t.Error("the tasks did not end")
	}
	stop()
	must(d.t, <-ended)
}

func (d *traced) unfinished() (n int64) {
	counts, err := d.client.Store().Count(d.t.Context())
	must(d.t, err)
	for _, c := range counts {
		if !c.State.Finished() {
			n += c.Tasks
		}
	}
	return n
}

// named returns the spans with a name, in the order in which they began.
func (d *traced) named(name string) []tracetest.SpanStub {
	found := slices.DeleteFunc(d.spans.GetSpans(), func(s tracetest.SpanStub) bool { return s.Name != name })
	slices.SortFunc(found, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	return found
}

func (d *traced) one(name string) tracetest.SpanStub {
	d.t.Helper()
	found := d.named(name)
	if len(found) != 1 {
		d.t.Fatalf("%d spans are named %q, want one; there are %v", len(found), name, d.names())
	}
	return found[0]
}

func (d *traced) names() (all []string) {
	for _, s := range d.spans.GetSpans() {
		all = append(all, s.Name)
	}
	return all
}

func values(s tracetest.SpanStub) map[string]string {
	all := map[string]string{}
	for _, a := range s.Attributes {
		all[string(a.Key)] = a.Value.String()
	}
	return all
}

func TestTheFirstAttemptIsAChildAndARetryIsLinked(t *testing.T) {
	d := newTraced(t, sdk.AlwaysSample())
	tusk.HandleKind(d.mux, "send", func(_ context.Context, task *tusk.Task[map[string]int]) error {
		if task.Attempt == 1 {
			return tusk.RetryAfter(0, errors.New("the server is busy"))
		}
		return nil
	})
	ctx, user := d.user.Start(t.Context(), "request")
	sent, err := d.client.Enqueue(ctx, tusk.RawArgs{Name: "send", JSON: []byte(`{"n":1}`)},
		&tusk.Options{Queue: "mail", Metadata: map[string]string{"own": "1"}})
	must(t, err)
	user.End()
	d.work("mail")

	send, attempts := d.one("send mail"), d.named("process mail")
	if len(attempts) != 2 {
		t.Fatalf("%d attempts, want 2: %v", len(attempts), d.names())
	}
	first, retry := attempts[0], attempts[1]
	if send.Parent.SpanID() != user.SpanContext().SpanID() || first.Parent.SpanID() != send.SpanContext.SpanID() ||
		first.SpanContext.TraceID() != user.SpanContext().TraceID() || len(first.Links) != 0 {
		t.Errorf("request %v, send under %v, first attempt under %v: want a chain", user.SpanContext().SpanID(), send.Parent,
			first.Parent)
	}
	if retry.Parent.IsValid() || retry.SpanContext.TraceID() == send.SpanContext.TraceID() || len(retry.Links) != 1 ||
		retry.Links[0].SpanContext.SpanID() != send.SpanContext.SpanID() {
		t.Errorf("the retry is %+v, want a new trace with a link to %v", retry, send.SpanContext)
	}
	if first.Status != (sdk.Status{Code: codes.Error, Description: "the server is busy"}) ||
		retry.Status.Code != codes.Unset {
		t.Errorf("the attempts ended with %+v and %+v", first.Status, retry.Status)
	}
	if send.SpanKind != trace.SpanKindProducer || first.SpanKind != trace.SpanKindConsumer {
		t.Errorf("kinds %v and %v", send.SpanKind, first.SpanKind)
	}
	want := map[string]string{"messaging.system": "tusk", "messaging.operation.type": "process",
		"messaging.operation.name":   "process",
		"messaging.destination.name": "mail", "messaging.message.id": sent.ID.String(),
		"tusk.task.kind": "send", "tusk.task.attempt": "2"}
	if got := values(retry); !maps.Equal(got, want) {
		t.Errorf("the retry has %v, want %v", got, want)
	}
	task, err := d.client.Get(t.Context(), sent.ID)
	must(t, err)
	if !maps.Equal(task.Metadata, map[string]string{"own": "1"}) || task.TraceContext["traceparent"] == "" {
		t.Errorf("metadata %v, trace context %v", task.Metadata, task.TraceContext)
	}
}

func TestWorkflowsPipelinesAndChildrenAreOneTrace(t *testing.T) {
	d := newTraced(t, sdk.AlwaysSample())
	nothing := func(context.Context, *tusk.Task[map[string]int]) error { return nil }
	tusk.HandleKind(d.mux, "leaf", nothing)
	tusk.HandleKind(d.mux, "parent", func(ctx context.Context, task *tusk.Task[map[string]int]) error {
		if inputs, err := task.Inputs(ctx); err != nil || len(inputs) > 0 {
			return err
		}
		_, err := task.Spawn(ctx, tusk.RawArgs{Name: "leaf"}, &tusk.Options{Queue: "children"})
		return errors.Join(err, tusk.Wait())
	})
	line := tusk.NewPipeline("line").Stage("one", nil).Stage("two", nil)
	step := func(context.Context, *tusk.Task[int]) (int, error) { return 1, nil }
	tusk.HandleStage(d.mux, line, "one", step)
	tusk.HandleStage(d.mux, line, "two", step)

	enter := func(name string, enqueue func(ctx context.Context) error) trace.TraceID {
		ctx, span := d.user.Start(t.Context(), name)
		defer span.End()
		must(t, enqueue(ctx))
		return span.SpanContext().TraceID()
	}
	in := map[trace.TraceID][]string{}
	in[enter("workflow", func(ctx context.Context) error {
		w := tusk.NewWorkflow()
		w.Task("b", tusk.RawArgs{Name: "leaf"}, &tusk.Options{Queue: "late"}).After(w.Task("a", tusk.RawArgs{Name: "leaf"},
			&tusk.Options{Queue: "early"}))
		_, err := d.client.EnqueueWorkflow(ctx, w)
		return err
	})] = []string{"process early", "process late", "send", "workflow"}
	in[enter("children", func(ctx context.Context) error {
		_, err := d.client.Enqueue(ctx, tusk.RawArgs{Name: "parent"}, &tusk.Options{Queue: "parents"})
		return err
	})] = []string{"children", "process children", "process parents", "process parents", "send parents"}
	in[enter("pipeline", func(ctx context.Context) error {
		_, err := d.client.Enqueue(ctx, line.Start(1), nil)
		return err
	})] = []string{"pipeline", "process line.one", "process line.two", "send line.one"}

	d.work("early", "late", "parents", "children", "line.one", "line.two")
	got := map[trace.TraceID][]string{}
	for _, s := range d.spans.GetSpans() {
		got[s.SpanContext.TraceID()] = append(got[s.SpanContext.TraceID()], s.Name)
	}
	if len(got) != len(in) {
		t.Errorf("%d traces, want %d", len(got), len(in))
	}
	for id, want := range in {
		if slices.Sort(got[id]); !slices.Equal(got[id], want) {
			t.Errorf("the trace has %q, want %q", got[id], want)
		}
	}
	if child, stage := d.one("process children"),
		d.one("process line.two"); child.Parent.SpanID() != d.named("process parents")[0].SpanContext.SpanID() ||
		stage.Parent.SpanID() != d.one("process line.one").SpanContext.SpanID() {
		t.Error("a child or a stage is not below the attempt that made it")
	}
}

func TestWhatIsNotSampledCarriesNothing(t *testing.T) {
	d := newTraced(t, sdk.NeverSample())
	tusk.HandleKind(d.mux, "k", func(context.Context, *tusk.Task[map[string]int]) error { return nil })
	sent, err := d.client.Enqueue(t.Context(), tusk.RawArgs{Name: "k"}, nil)
	must(t, err)
	d.work("default")
	task, err := d.client.Get(t.Context(), sent.ID)
	must(t, err)
	if task.State != tusk.StateCompleted || task.Settings != nil || len(d.names()) > 0 {
		t.Errorf("the task is %v with settings %s; spans %v", task.State, task.Settings, d.names())
	}
}

// asked is a sampler that counts its calls and samples nothing.
type asked struct{ times atomic.Int64 }

func (a *asked) ShouldSample(sdk.SamplingParameters) sdk.SamplingResult {
	a.times.Add(1)
	return sdk.SamplingResult{Decision: sdk.Drop}
}

func (a *asked) Description() string { return "asked" }

func TestTheSamplerIsAskedOnceForABatch(t *testing.T) {
	const tasks = 200
	sampler := &asked{}
	d := newTraced(t, sdk.ParentBased(sampler))
	tusk.HandleKind(d.mux, "k", func(ctx context.Context, _ *tusk.Task[map[string]int]) error {
		_, span := d.user.Start(ctx, "query")
		span.End()
		return nil
	})
	_, err := d.client.EnqueueMany(t.Context(), slices.Repeat([]tusk.NewTask{{Args: tusk.RawArgs{Name: "k"}}}, tasks))
	must(t, err)
	d.work("default")
	if n := sampler.times.Load(); n == 0 || n > tasks/2 {
		t.Errorf("the sampler was asked %d times for %d tasks", n, tasks)
	}
}

func TestAttemptsOfTasksWithoutATraceBelongToTheirClaim(t *testing.T) {
	d := newTraced(t, sdk.AlwaysSample())
	tusk.HandleKind(d.mux, "k", func(_ context.Context, task *tusk.Task[map[string]int]) error {
		if task.Attempt == 1 {
			return tusk.RetryAfter(0, errors.New("the server is busy"))
		}
		return nil
	})
	untraced, err := tusk.NewClient(d.client.Store().(interface{ Unwrap() store.Store }).Unwrap(), nil)
	must(t, err)
	_, err = untraced.Enqueue(t.Context(), tusk.RawArgs{Name: "k"}, nil)
	must(t, err)
	d.work("default")
	claims, attempts := d.named("receive default"), d.named("process default")
	if len(claims) != 2 || len(attempts) != 2 {
		t.Fatalf("the spans are %q, want two claims and two attempts", d.names())
	}
	for i := range attempts {
		if attempts[i].Parent.SpanID() != claims[i].SpanContext.SpanID() || claims[i].Parent.IsValid() {
			t.Errorf("attempt %d is below %v, want the claim %v, which has no parent", i+1, attempts[i].Parent,
				claims[i].SpanContext)
		}
	}
	want := map[string]string{"messaging.system": "tusk", "messaging.operation.type": "receive",
		"messaging.operation.name":   "receive",
		"messaging.destination.name": "default", "messaging.batch.message_count": "1"}
	if got := values(claims[0]); !maps.Equal(got, want) || claims[0].SpanKind != trace.SpanKindClient {
		t.Errorf("the claim has %v, want %v", got, want)
	}
}

func TestTasksOfOneCallCarryTheSame(t *testing.T) {
	d := newTraced(t, sdk.AlwaysSample())
	batch := []tusk.NewTask{{Args: tusk.RawArgs{Name: "k"}}, {Args: tusk.RawArgs{Name: "k"}},
		{Args: tusk.RawArgs{Name: "k"}, Options: &tusk.Options{MaxAttempts: 3}}}
	sent, err := d.client.EnqueueMany(t.Context(), batch)
	must(t, err)
	var settings []string
	for _, s := range sent {
		task, err := d.client.Get(t.Context(), s.ID)
		must(t, err)
		settings = append(settings, string(task.Settings))
	}
	last, err := d.client.Get(t.Context(), sent[2].ID)
	must(t, err)
	if settings[0] != settings[1] || last.MaxAttempts != 3 || last.TraceContext["traceparent"] == "" {
		t.Errorf("the settings are %q", settings)
	}
	if got := values(d.one("send default")); got["messaging.batch.message_count"] != "3" ||
		got["messaging.message.id"] != "" {
		t.Errorf("the span has %v", got)
	}
}

func TestTransactionsAreTraced(t *testing.T) {
	d := newTraced(t, sdk.AlwaysSample())
	db, err := sql.Open("sqlite", d.file)
	must(t, err)
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	sent, err := d.client.EnqueueTx(t.Context(), tx, tusk.RawArgs{Name: "k"}, nil)
	must(t, err)
	must(t, tx.Commit())
	task, err := d.client.Get(t.Context(), sent.ID)
	must(t, err)
	if want := d.one("send default").SpanContext.TraceID().String(); task.TraceContext["traceparent"][3:35] != want {
		t.Errorf("the task carries %v, want the trace %s", task.TraceContext, want)
	}
}

func TestTheStatusSaysHowAnAttemptEnded(t *testing.T) {
	busy := errors.New("busy")
	for name, c := range map[string]struct {
		end  func() error
		want sdk.Status
	}{
		"done":      {func() error { return nil }, sdk.Status{}},
		"cancelled": {func() error { return tusk.Cancel("not wanted") }, sdk.Status{}},
		"discarded": {func() error { return tusk.Discard(busy) }, sdk.Status{Code: codes.Error, Description: "busy"}},
		"failed":    {func() error { return busy }, sdk.Status{Code: codes.Error, Description: "busy"}},
		"panic": {func() error { panic("oops") },
			sdk.Status{Code: codes.Error, Description: "the handler panicked or left its goroutine"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTraced(t, sdk.AlwaysSample())
			tusk.HandleKind(d.mux, "k", func(context.Context, *tusk.Task[map[string]int]) error { return c.end() })
			_, err := d.client.Enqueue(t.Context(), tusk.RawArgs{Name: "k"}, &tusk.Options{MaxAttempts: 1})
			must(t, err)
			d.work("default")
			if got := d.one("process default").Status; got != c.want {
				t.Errorf("the status is %+v, want %+v", got, c.want)
			}
		})
	}
}
