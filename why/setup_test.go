package why_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/enginetest"
	"github.com/tuskqueue/tusk/store/memory"
	"github.com/tuskqueue/tusk/why"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

var engines = map[string]func(t testing.TB) store.Store{
	"memory": func(testing.TB) store.Store { return memory.New() }, "sqlite": enginetest.SQL["sqlite"],
	"postgres": enginetest.SQL["postgres"], "mysql": enginetest.SQL["mysql"],
}

// bench is a database with a client. A test creates what it needs there.
type bench struct {
	*testing.T
	*tusk.Client
	queue string
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// named fails unless a reason is told first, in words that have all the parts.
func (b *bench) named(told []why.Reason, code why.Code, parts []string) {
	b.Helper()
	if told[0].Code != code {
		b.Fatalf("%+v, want %s first", told, code)
	}
	for _, part := range parts {
		if text := told[0].Text + " " + told[0].Fix; !strings.Contains(text, part) {
			b.Errorf("%q: want %q in it", text, part)
		}
	}
}

// add enqueues a task of the kind k.
func (b *bench) add(o tusk.Options) tusk.ID {
	b.Helper()
	if o.Queue == "" {
		o.Queue = b.queue
	}
	added, err := b.Enqueue(b.Context(), tusk.RawArgs{Name: "k"}, &o)
	b.must(err)
	return added.ID
}

// worker makes a live worker of the queue with one slot and some kinds.
func (b *bench) worker(kinds ...string) *store.Worker {
	b.Helper()
	w := &store.Worker{ID: tusk.NewID(), Host: "here", PID: 7, Queues: []string{b.queue}, Concurrency: 1, Kinds: kinds}
	b.beat(w, time.Hour)
	return w
}

func (b *bench) beat(w *store.Worker, ttl time.Duration) {
	b.Helper()
	_, err := b.Store().Extend(b.Context(), store.Beat{Worker: *w, TTL: ttl})
	b.must(err)
}

// claim makes a worker claim a task.
func (b *bench) claim(w *store.Worker) *store.Task {
	b.Helper()
	for {
		tasks, err := b.Store().Claim(b.Context(), store.ClaimRequest{Worker: w.ID, Queues: []string{b.queue}, Limit: 1,
			Token: store.NewToken()})
		b.must(err)
		if len(tasks) == 1 {
			return &tasks[0]
		}
		b.must(b.Context().Err())
	}
}

func (b *bench) finish(t *store.Task, o store.Outcome) {
	b.Helper()
	o.Task, o.Attempt = t, t.Attempt
	lost, err := b.Store().Finish(b.Context(), []store.Outcome{o})
	if err != nil || len(lost) > 0 {
		b.Fatal(lost, err)
	}
}

// lead makes a process lead that does no chores, so that only the test changes anything.
func (b *bench) lead() int64 {
	b.Helper()
	l, err := b.Store().Lead(b.Context(), store.Candidate{ID: tusk.NewID(), TTL: time.Hour})
	b.must(err)
	return l.Term
}

// chores makes a process lead that does the chores.
func (b *bench) chores() {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Lead(ctx, nil) }()
	b.Cleanup(func() { stop(); <-done })
}

func (b *bench) await(id tusk.ID, state tusk.State) {
	b.Helper()
	for {
		t, err := b.Get(b.Context(), id)
		b.must(err)
		if t.State == state {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// pull makes an HTTP worker ask for tasks of the queue, which is still empty.
func (b *bench) pull() {
	b.Helper()
	ctx, stop := context.WithCancel(context.Background())
	puller, done := b.NewPuller(), make(chan error, 1)
	go func() { done <- puller.Run(ctx) }()
	b.Cleanup(func() { stop(); <-done })
	_, err := puller.Claim(b.Context(), tusk.Pull{Queues: []string{b.queue}})
	b.must(err)
	for told := false; !told; time.Sleep(5 * time.Millisecond) {
		workers, err := b.Workers(b.Context())
		b.must(err)
		told = len(workers) == 1 && slices.Contains(workers[0].Queues, b.queue)
	}
}

// past waits until a millisecond has passed on the database's clock.
func (b *bench) past() {
	b.Helper()
	e, _ := store.As[store.Examiner](b.Store())
	first, err := e.Examine(b.Context())
	b.must(err)
	for {
		h, err := e.Examine(b.Context())
		b.must(err)
		if h.Now.Sub(first.Now) > 3*time.Millisecond {
			return
		}
	}
}

// strange adds a task that is put off because no worker has a handler for it.
func (b *bench) strange() tusk.ID {
	b.Helper()
	id, w := b.add(tusk.Options{}), b.worker("other")
	b.finish(b.claim(w), lifecycle.After(&store.Task{Kind: "k"}, lifecycle.Settings{},
		lifecycle.End{Err: &lifecycle.UnknownKindError{Noted: true}}, 0))
	return id
}

// later adds a task that is then rescheduled to run in three hours.
func (b *bench) later(o tusk.Options) tusk.ID {
	b.Helper()
	id := b.add(o)
	_, err := b.Edit(b.Context(), []tusk.ID{id}, tusk.Change{Op: tusk.OpReschedule, Delay: 3 * hour})
	b.must(err)
	return id
}

// after adds a task that runs after another.
func (b *bench) after(first tusk.ID, policy store.OnFailure) tusk.ID {
	b.Helper()
	id := tusk.NewID()
	_, err := b.Store().Enqueue(b.Context(), []store.NewTask{{ID: id, Kind: "k", Queue: b.queue, Args: []byte("{}"),
		Needs: []store.Need{{Task: first, OnFailure: policy}}}})
	b.must(err)
	return id
}

// second adds two tasks to a queue with limits. The first one runs.
func (b *bench) second(l tusk.Limits, o tusk.Options) tusk.ID {
	b.Helper()
	b.must(b.SetLimits(b.Context(), b.queue, l))
	b.chores()
	w := b.worker()
	b.add(o)
	b.claim(w)
	return b.add(o)
}
