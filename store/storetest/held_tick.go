package storetest

import (
	"context"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk/store"
)

var heldTick = clause{
	"held/a tick whose key a user's open transaction holds delays neither the leader nor other records, and fires later",
	func(t *T) {
		h := newHeld(t)
		tx, commit, _ := t.begin()
		if err := completedIn(h, tx); err != nil {
			t.Fatal(err)
		}
		r := h.schedule("held")
		err := h.ticks(r)
		commit()
		if err != nil {
			t.Fatal(err)
		}
		h.fires(r)
	}}

// schedule stores a record and returns it.
func (h *held) schedule(name string) store.Record {
	h.Helper()
	r := store.Record{Kind: "schedule", Name: name, Body: []byte(`1`)}
	version, err := h.put(r)
	if err != nil {
		h.Fatal(err)
	}
	r.Version = version
	return r
}

// ticks writes a record with a task whose key is held, as the leader does when a schedule fires. The write may wait for
// the key. It returns an error if anything else waits, until the write is over or then.
func (h *held) ticks(r store.Record) error {
	h.Helper()
	term, other := h.lead(), h.schedule("other")
	ctx, cancel := context.WithTimeout(h.T.ctx(), 5*time.Second)
	defer cancel()
	over := make(chan error, 1)
	go func() {
		over <- h.tick(ctx, term, r)
	}()
	for last := false; !last; {
		select {
		case err := <-over:
			h.Logf("the tick: %v", err)
			last = true
		case <-time.After(20 * time.Millisecond):
		}
		if err := h.leads(term, &other); err != nil {
			return err
		}
	}
	return nil
}

// leads renews the leader's term, and writes a record as the leader and as somebody else.
func (h *held) leads(term int64, r *store.Record) error {
	ctx, cancel := context.WithTimeout(h.T.ctx(), 4*time.Second)
	defer cancel()
	l, err := h.Lead(ctx, store.Candidate{ID: h.leader, Term: term, TTL: time.Minute})
	if err != nil || l.Term != term {
		return fmt.Errorf("lead: %+v, %v", l, err)
	}
	updated, err := h.UpdateRecords(ctx, term,
		[]store.PutRecord{{Record: *r, Tasks: []store.NewTask{newTask(key("free tick"))}}})
	if err != nil || updated[0].Version == 0 {
		return fmt.Errorf("another schedule: %+v, %v", updated, err)
	}
	r.Version = updated[0].Version
	if r.Version, _, err = h.PutRecord(ctx, store.PutRecord{Record: *r}); err != nil {
		return fmt.Errorf("another record: %v", err)
	}
	return nil
}

// tick writes a record with a task.
func (h *held) tick(ctx context.Context, term int64, r store.Record) error {
	_, err := h.UpdateRecords(ctx, term, []store.PutRecord{{Record: r, Tasks: []store.NewTask{newTask(key("mine"))}}})
	return err
}

// fires repeats a tick that was not written, and fails unless its task is there soon.
func (h *held) fires(r store.Record) {
	h.Helper()
	term := h.lead()
	waits := store.Filter{Key: "mine", Queues: []string{"q"}, States: []store.State{store.Available}}
	for end := time.Now().Add(20 * time.Second); len(h.list(waits)) == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			h.Fatal("the tick has not fired")
		}
		now, err := h.Records(h.ctx(), store.RecordFilter{Kind: r.Kind, Names: []string{r.Name}})
		if err != nil || len(now) != 1 {
			h.Fatal(now, err)
		}
		if now[0].Version == r.Version {
			if err := h.tick(h.ctx(), term, r); err != nil {
				h.Logf("the tick: %v", err)
			}
		}
		h.admit(100)
	}
}
