package storetest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// heard are the hints received so far.
type heard struct {
	t     *T
	hints chan store.Hint
}

// listen receives hints until the test ends.
func (t *T) listen() *heard {
	t.Helper()
	engine, ok := store.As[store.Notifier](t.Store)
	if !ok {
		t.Skip("the engine tells nobody of tasks")
	}
	h := &heard{t, make(chan store.Hint, 10000)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		engine.Listen(ctx, func(hint store.Hint) { h.hints <- hint })
	}()
	t.Cleanup(func() { cancel(); <-ended })
	h.until("a queue", func() { t.addOne(queue("first")) }, func(hint store.Hint) bool { return len(hint.Queues) > 0 })
	return h
}

// until calls do until a hint satisfies want. It may call do several times, because hints may be lost. It returns the
// hints that came before.
func (h *heard) until(what string, do func(), want func(store.Hint) bool) (before []store.Hint) {
	h.t.Helper()
	for range 20 {
		for len(h.hints) > 0 {
			<-h.hints
		}
		do()
		for late := time.After(time.Second); late != nil; {
			select {
			case hint := <-h.hints:
				if want(hint) {
					return before
				}
				before = append(before, hint)
			case <-late:
				late = nil
			}
		}
	}
	h.t.Fatalf("nobody is told of %s", what)
	return nil
}

// quiet waits until no hints come.
func (h *heard) quiet() {
	for {
		select {
		case <-h.hints:
		case <-time.After(200 * time.Millisecond):
			return
		}
	}
}

func ofTurns(h store.Hint) bool { return h.Turns }
func ofDue(h store.Hint) bool   { return h.Due }
func ofSoon(h store.Hint) bool  { return h.Soon }

var ringClauses = []clause{
	{"ring/whoever leads is told of tasks that wait for their turn", func(t *T) {
		h, worker := t.listen(), t.worker()
		h.until("a task in line", func() { t.addOne(inTurn("a", "")) }, ofTurns)
		h.until("many in line", func() { t.addMany(100, inTurn("a", "")) }, ofTurns)
		h.until("a task that need not wait for its time any more", func() {
			t.edit(store.Change{Op: store.Reschedule}, t.addOne(inTurn("a", ""), delay(time.Hour)))
		}, ofTurns)
		h.until("a task whose needs are met", func() {
			parent := t.addOne(queue("parents"))
			t.addOne(inTurn("a", ""), needs(store.CancelOnFailure, parent))
			for _, task := range t.take(worker, 10, "parents") {
				t.mustEnd(to(store.Completed, &task))
			}
		}, ofTurns)
	}},
	{"ring/whoever leads is told of tasks that are due soon", func(t *T) {
		h, worker := t.listen(), t.worker()
		h.until("a task with a very short delay", func() { t.addOne(delay(store.Promptly / 3)) }, ofDue)
		h.until("a task with a short delay", func() { t.addOne(delay(store.Promptly + 200*time.Millisecond)) }, ofSoon)
		h.until("a task of a near instant", func() {
			t.addOne(func(n *store.NewTask) { n.RunAt = time.Now().Add(time.Second) })
		}, ofSoon)
		h.until("a task that is tried again soon", func() {
			t.addOne(queue("failing"))
			for _, task := range t.take(worker, 10, "failing") {
				o := to(store.Retryable, &task)
				o.Delay = store.Promptly / 3
				t.mustEnd(o)
			}
		}, ofDue)
		h.until("a task that was put off for a moment", func() {
			t.edit(store.Change{Op: store.Reschedule, RunAt: time.Now().Add(time.Second)}, t.addOne(delay(time.Hour)))
		}, ofSoon)
	}},
	{"ring/workers are told of a rerun and of what is handed back", func(t *T) {
		h, worker := t.listen(), t.worker()
		rounds, rerun := 0, conflict(store.Rerun)
		told := func(what string, state store.State, before func(queue string)) {
			t.Helper()
			name := ""
			h.until(what, func() {
				rounds++
				name = fmt.Sprint("q", rounds)
				t.addOne(queue(name), key("k"), rerun)
				task := t.take(worker, 1, name)[0]
				before(name)
				h.quiet()
				t.mustEnd(to(state, &task))
			}, func(hint store.Hint) bool { return slices.Contains(hint.Queues, name) })
		}
		again := func(name string) { t.addOne(queue(name), key("k"), rerun) }
		told("a task that waited for another one with its key", store.Completed, again)
		told("the same when the other one failed", store.Discarded, again)
		told("a task that a worker gives back", store.Available, func(string) {})
		h.until("a rerun in line", func() {
			rounds++
			name := fmt.Sprint("q", rounds)
			t.addOne(queue(name), key("k"), rerun)
			task := t.take(worker, 1, name)[0]
			t.addOne(queue(name), key("k"), rerun, inTurn("", ""))
			h.quiet()
			t.mustEnd(to(store.Completed, &task))
		}, ofTurns)
	}},
	{"ring/nobody is told of what is due in an hour", func(t *T) {
		h := t.listen()
		before := h.until("a queue", func() {
			t.addOne(delay(time.Hour), inTurn("a", ""))
			t.addOne(delay(time.Hour))
			t.addOne(queue("other"))
		}, func(hint store.Hint) bool { return len(hint.Queues) > 0 })
		for _, hint := range before {
			if hint.Turns || hint.Due || hint.Soon {
				t.Errorf("%+v", hint)
			}
		}
	}},
}
