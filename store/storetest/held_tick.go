package storetest

import (
	"context"
	"time"

	"github.com/tuskqueue/tusk/store"
)

var heldTick = clause{
	"held/a tick whose key a user's open transaction holds delays neither the leader nor other records",
	func(t *T) {
		t.transactor()
		if t.engine.OneWriter {
			t.Skip("the engine has one writer: an open transaction that wrote holds up all others")
		}
		h := newHeld(t)
		tx, commit, _ := t.begin()
		if err := completedIn(h, tx); err != nil {
			t.Fatal(err)
		}
		h.ticks()
		commit()
		h.tick()
	}}

// schedule stores a record if there is none of that name, and returns it.
func (h *held) schedule(name string) store.Record {
	h.Helper()
	r := store.Record{Kind: "schedule", Name: name, Body: []byte(`1`)}
	f := store.RecordFilter{Kind: r.Kind, Names: []string{name}}
	stored, err := h.Records(h.T.ctx(), f)
	if err == nil && len(stored) == 0 {
		r.Version, err = h.put(r)
		stored = []store.Record{r}
	}
	if err != nil {
		h.Fatal(err)
	}
	return stored[0]
}

// ticks writes a record with a task whose key is held, as the leader does when a schedule fires. The write may wait for
// the key. Until it is over, and when it is, the leader renews its term and writes other records, as does everybody.
func (h *held) ticks() {
	h.Helper()
	term, r, other := h.lead(), h.schedule("held"), h.schedule("other")
	ctx, cancel := context.WithTimeout(h.T.ctx(), 3*time.Second)
	defer cancel()
	over := make(chan error, 1)
	go func() {
		_, err := h.UpdateRecords(ctx, term, []store.PutRecord{{Record: r, Tasks: []store.NewTask{newTask(key("mine"))}}})
		over <- err
	}()
	for last := false; !last; {
		select {
		case err := <-over:
			h.Logf("the tick: %v", err)
			last = true
		case <-time.After(20 * time.Millisecond):
		}
		soon, cancel := context.WithTimeout(h.T.ctx(), 2*time.Second)
		if l, err := h.Lead(soon, store.Candidate{ID: h.leader, Term: term, TTL: time.Minute}); err != nil || l.Term != term {
			h.Fatalf("lead: %+v, %v", l, err)
		}
		updated, err := h.UpdateRecords(soon, term,
			[]store.PutRecord{{Record: other, Tasks: []store.NewTask{newTask(key("free tick"))}}})
		if err != nil || updated[0].Version == 0 {
			h.Fatalf("another schedule: %+v, %v", updated, err)
		}
		other.Version = updated[0].Version
		if other.Version, _, err = h.PutRecord(soon, store.PutRecord{Record: other}); err != nil {
			h.Fatalf("another record: %v", err)
		}
		cancel()
	}
}

// tick does what ticks does, once nobody holds the key.
func (h *held) tick() {
	h.Helper()
	updated, err := h.UpdateRecords(h.T.ctx(), h.lead(), []store.PutRecord{{Record: h.schedule("held"),
		Tasks: []store.NewTask{newTask(key("mine"))}}})
	if err != nil || updated[0].Version == 0 || len(updated[0].Enqueued) != 1 {
		h.Fatalf("the tick after the commit: %+v, %v", updated, err)
	}
}
