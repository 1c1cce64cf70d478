package telemetry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Wrap returns a store whose calls are counted.
func (t *Telemetry) Wrap(s store.Store) store.Store {
	c := &counted{Store: s, counts: &t.counts}
	if x, ok := s.(store.Exchanger); ok {
		return &exchanging{c, x}
	}
	return c
}

// counted is a store whose calls are counted.
type counted struct {
	store.Store
	counts *counts
}

// Unwrap lets store.As find the capabilities of the engine.
func (c *counted) Unwrap() store.Store { return c.Store }

func (c *counted) Enqueue(ctx context.Context, tasks []store.NewTask) ([]store.Enqueued, error) {
	began := time.Now()
	results, err := c.Store.Enqueue(ctx, tasks)
	c.counts.call("enqueue", began, err)
	c.counts.enqueue(tasks, results)
	return results, err
}

func (c *counted) Claim(ctx context.Context, r store.ClaimRequest) ([]store.Task, error) {
	began := time.Now()
	tasks, err := c.Store.Claim(ctx, r)
	c.counts.call("claim", began, err)
	c.counts.claim(tasks)
	return tasks, err
}

// Park implements store.Parker. A parked claim that gets a task counts as a claim.
func (c *counted) Park(p *store.Parked) (recall func()) {
	inner := *p
	inner.Answer = func(tasks []store.Task, asked time.Time, err error) {
		if len(tasks) > 0 || err != nil {
			c.counts.call("claim", asked, err)
			c.counts.claim(tasks)
		}
		p.Answer(tasks, asked, err)
	}
	return store.Park(c.Store, &inner)
}

func (c *counted) Extend(ctx context.Context, b store.Beat) ([]store.Stop, error) {
	began := time.Now()
	stops, err := c.Store.Extend(ctx, b)
	c.counts.call("extend", began, err)
	return stops, err
}

func (c *counted) Finish(ctx context.Context, outcomes []store.Outcome) ([]store.ID, error) {
	began := time.Now()
	lost, err := c.Store.Finish(ctx, outcomes)
	held := new(store.HeldError)
	if c.counts.call("finish", began, err); err == nil {
		c.counts.finish(outcomes, lost)
	} else if errors.As(err, &held) { // the others have ended
		c.counts.finish(slices.DeleteFunc(slices.Clone(outcomes), func(o store.Outcome) bool {
			return slices.Contains(held.Tasks, o.Task.ID)
		}), lost)
	}
	return lost, err
}

func (c *counted) Lead(ctx context.Context, candidate store.Candidate) (store.Leadership, error) {
	began := time.Now()
	l, err := c.Store.Lead(ctx, candidate)
	c.counts.call("lead", began, err)
	return l, err
}

func (c *counted) Admit(ctx context.Context, term int64, limit int) (store.Admitted, error) {
	began := time.Now()
	a, err := c.Store.Admit(ctx, term, limit)
	c.counts.call("admit", began, err)
	c.counts.add(&c.counts.admitted, a.Count)
	return a, err
}

func (c *counted) Grant(ctx context.Context, term int64, ids []store.ID) (int, error) {
	began := time.Now()
	n, err := c.Store.Grant(ctx, term, ids)
	c.counts.call("grant", began, err)
	return n, err
}

func (c *counted) Rescue(ctx context.Context, term int64, limit int) ([]store.Task, error) {
	began := time.Now()
	tasks, err := c.Store.Rescue(ctx, term, limit)
	if c.counts.call("rescue", began, err); err == nil {
		c.counts.rescue(tasks)
	}
	return tasks, err
}

func (c *counted) Prune(ctx context.Context, term int64, keep store.Retention, limit int) (int, error) {
	began := time.Now()
	n, err := c.Store.Prune(ctx, term, keep, limit)
	c.counts.call("prune", began, err)
	c.counts.add(&c.counts.pruned, n)
	return n, err
}

func (c *counted) Edit(ctx context.Context, e store.Edit) ([]store.Edited, error) {
	began := time.Now()
	edited, err := c.Store.Edit(ctx, e)
	c.counts.call("edit", began, err)
	return edited, err
}

func (c *counts) add(to *int64, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*to += int64(n)
}

// Tx implements store.Transactor if the engine does.
func (c *counted) Tx(tx any) (store.Tx, error) {
	engine, ok := store.As[store.Transactor](c.Store)
	if !ok {
		return nil, fmt.Errorf("transaction: %w", store.ErrUnsupported)
	}
	inside, err := engine.Tx(tx)
	if err != nil {
		return nil, err
	}
	return &countedTx{inside, c.counts}, nil
}

// countedTx counts calls inside a user's transaction. It does not count the tasks, because
// the transaction may not commit.
type countedTx struct {
	store.Tx
	counts *counts
}

func (c *countedTx) Enqueue(ctx context.Context, tasks []store.NewTask) ([]store.Enqueued, error) {
	began := time.Now()
	results, err := c.Tx.Enqueue(ctx, tasks)
	c.counts.call("enqueue_tx", began, err)
	return results, err
}

// exchanging is a counted store of an engine with store.Exchanger.
type exchanging struct {
	*counted
	inner store.Exchanger
}

func (e *exchanging) Exchange(ctx context.Context, o store.Outcome, r store.ClaimRequest) store.Exchanged {
	began := time.Now()
	x := e.inner.Exchange(ctx, o, r)
	e.counts.call("exchange", began, x.ClaimErr)
	if e.counts.claim(x.Tasks); x.FinishErr == nil {
		var lost []store.ID
		if x.Lost {
			lost = []store.ID{o.Task.ID}
		}
		e.counts.finish([]store.Outcome{o}, lost)
	}
	return x
}

func (c *counted) Records(ctx context.Context, f store.RecordFilter) ([]store.Record, error) {
	began := time.Now()
	records, err := c.Store.Records(ctx, f)
	c.counts.call("records", began, err)
	return records, err
}

func (c *counted) UpdateRecords(ctx context.Context, term int64, puts []store.PutRecord) ([]store.Updated, error) {
	began := time.Now()
	updated, err := c.Store.UpdateRecords(ctx, term, puts)
	if c.counts.call("update_records", began, err); err == nil {
		for i := range updated {
			if updated[i].Version != 0 {
				c.counts.enqueue(puts[i].Tasks, updated[i].Enqueued)
			}
		}
	}
	return updated, err
}

func (c *counted) PutRecord(ctx context.Context, p store.PutRecord) (int64, []store.Enqueued, error) {
	began := time.Now()
	version, results, err := c.Store.PutRecord(ctx, p)
	if c.counts.call("put_record", began, err); err == nil {
		c.counts.enqueue(p.Tasks, results)
	}
	return version, results, err
}
