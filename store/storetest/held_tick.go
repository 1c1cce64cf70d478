package storetest

import (
	"context"
	"fmt"
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
		err := h.ticks()
		commit()
		if err != nil {
			t.Fatal(err)
		}
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
func (h *held) ticks() error {
	h.Helper()
	term, r, other := h.lead(), h.schedule("held"), h.schedule("other")
	ctx, cancel := context.WithTimeout(h.T.ctx(), 5*time.Second)
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
