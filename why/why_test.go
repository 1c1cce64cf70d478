package why_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
	"github.com/tuskqueue/tusk/why"
)

// made is a test case for a reason: what causes it, and parts of its text.
type made struct {
	code  why.Code
	parts []string
	make  func(b *bench) tusk.ID
}

const hour = time.Hour

var reasons = []made{
	{why.Completed, nil, func(b *bench) tusk.ID {
		id, w := b.add(tusk.Options{}), b.worker()
		b.finish(b.claim(w), store.Outcome{State: store.Completed})
		b.await(id, store.Completed)
		return id
	}},
	{why.Cancelled, []string{"not needed", "tusk tasks retry"}, func(b *bench) tusk.ID {
		id := b.add(tusk.Options{})
		_, err := b.Cancel(b.Context(), id, "not needed")
		b.must(err)
		return id
	}},
	{why.Discarded, []string{"no more", "it broke", "tusk tasks retry"}, func(b *bench) tusk.ID {
		id, w := b.add(tusk.Options{}), b.worker()
		b.finish(b.claim(w), store.Outcome{State: store.Discarded, Reason: "no more", Error: "it broke", Fingerprint: "f"})
		return id
	}},
	{why.KeyTaken, []string{"same", "available"}, func(b *bench) tusk.ID {
		id := b.add(tusk.Options{Key: "same"})
		_, err := b.Cancel(b.Context(), id, "")
		b.must(err)
		b.add(tusk.Options{Key: "same"})
		return id
	}},
	{why.Running, []string{"here", "process 7", "last beat", "tusk tasks cancel"}, func(b *bench) tusk.ID {
		id := b.add(tusk.Options{})
		b.claim(b.worker())
		return id
	}},
	{why.Stopping, []string{"cancelled it"}, func(b *bench) tusk.ID {
		id := b.add(tusk.Options{})
		b.claim(b.worker())
		_, err := b.Cancel(b.Context(), id, "")
		b.must(err)
		return id
	}},
	{why.WorkerLost, []string{"does not beat"}, func(b *bench) tusk.ID {
		id, w := b.add(tusk.Options{}), b.worker()
		b.claim(w)
		term := b.lead()
		b.beat(w, time.Millisecond)
		for {
			found, err := b.Store().Rescue(b.Context(), term, 10) // nothing finishes the tasks that it returns
			b.must(err)
			if len(found) == 1 {
				return id
			}
		}
	}},
	{why.Scheduled, []string{", in ", "tusk tasks retry"}, func(b *bench) tusk.ID {
		return b.add(tusk.Options{Delay: hour})
	}},
	{why.Due, []string{"in a moment"}, func(b *bench) tusk.ID {
		b.lead()
		id := b.add(tusk.Options{Delay: time.Millisecond})
		b.past()
		return id
	}},
	{why.NoLeader, []string{"tusk serve"}, func(b *bench) tusk.ID {
		id := b.add(tusk.Options{Delay: time.Millisecond})
		b.past()
		return id
	}},
	{why.Retrying, []string{"attempt 1 of 25", "it broke", ", in "}, func(b *bench) tusk.ID {
		id, w := b.add(tusk.Options{}), b.worker()
		b.finish(b.claim(w), store.Outcome{State: store.Retryable, Delay: hour, Error: "it broke", Fingerprint: "f"})
		return id
	}},
	{why.NoHandler, []string{"no worker of its queue q", "kind k", "--exec k=COMMAND"}, func(b *bench) tusk.ID {
		return b.strange()
	}},
	{why.Retrying, []string{"no worker had a handler for the kind k", "within seconds", ", in "}, func(b *bench) tusk.ID {
		id := b.strange()
		b.worker("k")
		return id
	}},
	{why.Needs, []string{"1 task", "scheduled"}, func(b *bench) tusk.ID {
		return b.after(b.add(tusk.Options{Delay: hour}), store.CancelOnFailure)
	}},
	{why.NeedsFailed, []string{"cancelled", "tusk tasks retry"}, func(b *bench) tusk.ID {
		first := b.add(tusk.Options{})
		id := b.after(first, store.WaitOnFailure)
		_, err := b.Cancel(b.Context(), first, "")
		b.must(err)
		return id
	}},
	{why.Doomed, []string{"does not exist"}, func(b *bench) tusk.ID {
		b.lead()
		first := b.add(tusk.Options{})
		id := b.after(first, store.WaitOnFailure)
		b.must(b.Delete(b.Context(), first))
		return id
	}},
	{why.Doomed, []string{"which is cancelled"}, func(b *bench) tusk.ID {
		b.lead()
		first := b.add(tusk.Options{})
		id := b.after(first, store.CancelOnFailure)
		_, err := b.Cancel(b.Context(), first, "")
		b.must(err)
		return id
	}},
	{why.KeyRuns, []string{"one", "running"}, func(b *bench) tusk.ID {
		b.add(tusk.Options{Key: "one"})
		b.claim(b.worker())
		return b.add(tusk.Options{Key: "one", OnConflict: tusk.Rerun})
	}},
	{why.KeyRuns, []string{"another run of the pipeline", "available", "looks again at"}, func(b *bench) tusk.ID {
		p := tusk.NewPipeline("p").Stage("a", &tusk.Options{Queue: b.queue}).Stage("b", nil)
		b.must(b.DefinePipeline(b.Context(), p))
		o := &tusk.Options{Key: "doc", Tenant: "acme"}
		ahead, err := b.Enqueue(b.Context(), p.StartAt("b", 1), o)
		b.must(err)
		_, err = b.Enqueue(b.Context(), p.StartAt("b", 1), &tusk.Options{Key: "doc", Tenant: "other"})
		b.must(err)
		begins, err := b.Enqueue(b.Context(), p.Start(2), o)
		b.must(err)
		b.finish(b.claim(b.worker()), store.Outcome{State: store.Scheduled, Delay: hour})
		for _, id := range []tusk.ID{ahead.ID, begins.ID} {
			t, err := b.Get(b.Context(), id)
			b.must(err)
			before, err := b.RunAhead(b.Context(), t)
			b.must(err)
			if (before != nil) != (id == begins.ID) || before != nil && before.ID != ahead.ID {
				b.Errorf("before %s: %+v", t.Kind, before)
			}
		}
		return begins.ID
	}},
	{why.LimitQueue, []string{"1 of 1", "held by", "--concurrency 2"}, func(b *bench) tusk.ID {
		return b.second(tusk.Limits{Concurrency: 1}, tusk.Options{})
	}},
	{why.LimitTenant, []string{"1 of 1", "acme", "--per-tenant 2"}, func(b *bench) tusk.ID {
		return b.second(tusk.Limits{PerTenant: 1}, tusk.Options{Tenant: "acme"})
	}},
	{why.LimitPartition, []string{"1 of 1", "doc", "--per-partition 2"}, func(b *bench) tusk.ID {
		return b.second(tusk.Limits{PerPartition: 1}, tusk.Options{Partition: "doc"})
	}},
	{why.Rate, []string{"1 in 1h", "may start in", "--rate 2/1h"}, func(b *bench) tusk.ID {
		return b.second(tusk.Limits{Rate: &tusk.Rate{Allowed: 1, Period: hour}}, tusk.Options{})
	}},
	{why.RateTenant, []string{"acme", "may start in"}, func(b *bench) tusk.ID {
		return b.second(tusk.Limits{TenantRate: &tusk.Rate{Allowed: 1, Period: hour, Algorithm: tusk.SlidingWindow}},
			tusk.Options{Tenant: "acme"})
	}},
	{why.Paused, []string{"tusk queues resume"}, func(b *bench) tusk.ID {
		b.worker()
		b.must(b.PauseQueue(b.Context(), b.queue))
		return b.add(tusk.Options{})
	}},
	{why.NoWorker, []string{"tusk work --queue"}, func(b *bench) tusk.ID { return b.add(tusk.Options{}) }},
	{why.Quiet, []string{"the 1 worker", "claim nothing more", "tusk workers wake "}, func(b *bench) tusk.ID {
		b.worker("k")
		workers, err := b.Workers(b.Context())
		b.must(err)
		b.must(b.QuietWorker(b.Context(), workers[0].ID))
		return b.add(tusk.Options{})
	}},
	{why.NoHandler, []string{"no worker of its queue q", "kind k", "--exec k=COMMAND"}, func(b *bench) tusk.ID {
		b.worker("other", "another")
		return b.add(tusk.Options{})
	}},
	{why.LimitWorker, []string{"it may: 1", "--per-worker 2"}, func(b *bench) tusk.ID {
		b.must(b.SetLimits(b.Context(), b.queue, tusk.Limits{PerWorker: 1}))
		w := b.worker("k")
		w.Concurrency = 5
		b.beat(w, hour)
		b.add(tusk.Options{})
		b.claim(w)
		return b.add(tusk.Options{})
	}},
	{why.Behind, []string{"2 others", "1 of them of higher priority", "--priority -6"}, func(b *bench) tusk.ID {
		b.add(tusk.Options{Priority: -9})
		b.claim(b.worker())
		b.add(tusk.Options{})
		id := b.add(tusk.Options{})
		b.add(tusk.Options{Priority: -5})
		b.add(tusk.Options{Priority: 5})
		return id
	}},
	{why.Busy, []string{"1 of 1 slots"}, func(b *bench) tusk.ID {
		b.add(tusk.Options{})
		b.claim(b.worker())
		return b.add(tusk.Options{})
	}},
	{why.Expired, []string{"discarded when a worker"}, func(b *bench) tusk.ID {
		id := b.add(tusk.Options{ExpiresIn: time.Millisecond})
		b.past()
		return id
	}},
	{why.TooLate, []string{"its deadline was at", "discarded when a worker"}, func(b *bench) tusk.ID {
		id := b.add(tusk.Options{DeadlineIn: time.Millisecond})
		b.past()
		return id
	}},
	{why.Expired, []string{"can never run", "its expiry at", "tusk tasks retry"}, func(b *bench) tusk.ID {
		return b.later(tusk.Options{Delay: hour, ExpiresIn: 2 * hour})
	}},
	{why.TooLate, []string{"can never run", "its deadline at", "tusk tasks retry"}, func(b *bench) tusk.ID {
		return b.later(tusk.Options{Delay: hour, DeadlineIn: 2 * hour})
	}},
	{why.Ready, nil, func(b *bench) tusk.ID {
		b.worker("k")
		return b.add(tusk.Options{})
	}},
	{why.Ready, nil, func(b *bench) tusk.ID { // only HTTP workers take from its queue
		b.pull()
		return b.add(tusk.Options{})
	}},
	{why.Turn, []string{"as soon as a worker has room", "tusk limits show"}, func(b *bench) tusk.ID {
		b.must(b.SetLimits(b.Context(), b.queue, tusk.Limits{Concurrency: 1}))
		b.lead()
		b.worker()
		return b.add(tusk.Options{})
	}},
	{why.TurnsBehind, []string{"1 task of its partition", "--priority -1"}, func(b *bench) tusk.ID {
		b.must(b.SetLimits(b.Context(), b.queue, tusk.Limits{Concurrency: 1}))
		b.lead()
		b.worker()
		b.add(tusk.Options{})
		return b.add(tusk.Options{})
	}},
	{why.RatePartition, []string{"doc", "--partition-rate 2/1h"}, func(b *bench) tusk.ID {
		return b.second(tusk.Limits{PartitionRate: &tusk.Rate{Allowed: 1, Period: hour}}, tusk.Options{Partition: "doc"})
	}},
}

func TestEachReasonIsNamedFirstOnEachEngine(t *testing.T) {
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			for _, reason := range reasons {
				t.Run(string(reason.code), func(t *testing.T) {
					if name == "memory" {
						t.Parallel()
					}
					client, err := tusk.NewClient(open(t), &tusk.ClientConfig{Logger: slog.New(slog.DiscardHandler)})
					if err != nil {
						t.Fatal(err)
					}
					b := &bench{T: t, Client: client, queue: "q"}
					id := reason.make(b)
					_, told, err := why.Task(t.Context(), client, id)
					b.must(err)
					b.named(told, reason.code, reason.parts)
				})
			}
		})
	}
}

func TestSeveralReasonsAreToldInOrder(t *testing.T) {
	client, err := tusk.NewClient(memory.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, Client: client, queue: "q"}
	b.must(b.PauseQueue(t.Context(), "q"))
	_, told, err := why.Task(t.Context(), client, b.add(tusk.Options{Delay: hour}))
	b.must(err)
	var codes []why.Code
	for _, r := range told {
		codes = append(codes, r.Code)
	}
	if want := []why.Code{why.Scheduled, why.Paused, why.NoWorker}; !slices.Equal(codes, want) {
		t.Errorf("%v, want %v", codes, want)
	}
}

func TestATaskThatDoesNotExistHasNoReasons(t *testing.T) {
	client, err := tusk.NewClient(memory.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := why.Task(t.Context(), client, tusk.NewID()); !errors.Is(err, tusk.ErrNotFound) {
		t.Error(err)
	}
}

// Someone who may see only some tasks does not learn of others.
func TestWhoIsBoundIsToldOfNoOthers(t *testing.T) {
	client, err := tusk.NewClient(memory.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, Client: client, queue: "q"}
	id := b.second(tusk.Limits{Concurrency: 1}, tusk.Options{Tenant: "theirs"})
	task, err := b.Get(t.Context(), id)
	b.must(err)
	facts, err := why.Gather(t.Context(), client, *task, func(_, tenant string) bool { return tenant == "mine" })
	b.must(err)
	told := why.Explain(facts)
	if told[0].Code != why.LimitQueue || len(told[0].Tasks) > 0 || strings.Contains(told[0].Text, "1 of 1") ||
		strings.Contains(told[0].Text, "held by") {
		t.Errorf("%+v", told[0])
	}
}

// lists notes with which filters tasks are listed.
type lists struct {
	*memory.Store
	filters []store.Filter
}

func (l *lists) List(ctx context.Context, f store.Filter) ([]store.Task, error) {
	l.filters = append(l.filters, f)
	return l.Store.List(ctx, f)
}

func TestTheArgsOfOtherTasksAreNotRead(t *testing.T) {
	s := &lists{Store: memory.New()}
	client, err := tusk.NewClient(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, Client: client, queue: "q"}
	b.add(tusk.Options{})
	task, err := b.Get(t.Context(), b.add(tusk.Options{Key: "k"}))
	b.must(err)
	b.must(client.SetLimits(t.Context(), "q", tusk.Limits{Concurrency: 5}))
	s.filters = nil
	_, err = why.Gather(t.Context(), client, *task, nil)
	b.must(err)
	if len(s.filters) < 4 {
		t.Errorf("%d lists", len(s.filters))
	}
	for _, f := range s.filters {
		if !f.NoArgs {
			t.Errorf("the args are read: %+v", f)
		}
	}
}
