package tusk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/internal/run"
	"github.com/tuskqueue/tusk/store"
)

// How pullers of one database extend each other's loans. Only the lender sends the heartbeats of a loan and ends it
// when it is overdue. A puller that extends another's loan, a guest, therefore writes a record of all its guests. A
// lender reads these records only when a loan of its own is overdue.

const (
	guestRecord = "guests"
	mostGuests  = 5000                   // their record is written as a whole
	guestPause  = 100 * time.Millisecond // between two writes of it
	guestDetail = 16                     // guests whose details are read at a time: their logs may be large
	guestsOld   = MaxPullLease + time.Hour
)

// ErrLentElsewhere says that another puller lent the task, and that this one cannot extend more leases of others.
var ErrLentElsewhere = fmt.Errorf("lent by another process: this one extends at most %d leases of others at a time, "+
	"and for each tenant at most as many as it has room left", mostGuests)

type guest struct {
	*run.Attempt
	until time.Time
}

type guests struct {
	client  *Client
	name    string        // of the record
	turn    chan struct{} // held while the record is written
	version int64         // of the record; guarded by turn
	tidied  bool          // likewise

	mu      sync.Mutex
	of      map[Receipt]*guest
	tenants map[string]int // how many of them each tenant has
	asked   int64          // counts extensions
	written int64          // the extensions up to this one are stored
	last    time.Time      // when the record was last written
}

func newGuests(c *Client) *guests {
	return &guests{client: c, name: NewID().String(), turn: make(chan struct{}, 1),
		of: map[Receipt]*guest{}, tenants: map[string]int{}}
}

// extendGuests extends loans of other pullers. It returns when their lenders can know.
func (p *Puller) extendGuests(ctx context.Context, extensions []Extension) []Extended {
	results := make([]Extended, len(extensions))
	tasks := map[ID]*store.Task{}
	var err error
	for part := range slices.Chunk(extensions, guestDetail) {
		f := store.Filter{Limit: len(part), Detail: true, NoArgs: true, NoStates: true}
		for i := range part {
			f.IDs = append(f.IDs, part[i].Receipt.ID)
		}
		var some []store.Task
		if some, err = p.client.store.List(ctx, f); err != nil {
			break
		}
		for i := range some {
			tasks[some[i].ID] = &some[i]
		}
	}
	if err == nil {
		for i := range extensions {
			results[i] = p.extendGuest(tasks[extensions[i].Receipt.ID], &extensions[i])
		}
		err = p.guests.write(ctx)
	}
	for i := range results {
		if err != nil && results[i].Err == nil {
			results[i] = Extended{Err: fmt.Errorf("extend: %w", err)}
		}
	}
	return results
}

// extendGuest extends one loan in memory. The task is nil if it does not exist.
func (p *Puller) extendGuest(t *store.Task, e *Extension) Extended {
	if t == nil || t.State != store.Running || t.Lease != e.Receipt.Lease || p.had(t.Worker) {
		return Extended{Err: ErrLeaseLost} // this puller lent it, and no longer has it
	}
	asked := time.Now().Add(e.Lease) // the lender ends it earlier if the task's own time is over
	until := asked
	var info TaskInfo
	if err := info.read(t); err == nil { // otherwise only the lender knows when the task's own time is over
		if end := t.ClaimedAt.Add(info.Timeout); info.Timeout > 0 && until.After(end) {
			until = end
		}
		if !info.Deadline.IsZero() && until.After(info.Deadline) {
			until = info.Deadline
		}
	}
	cancelled := t.Detail.CancelRequested
	t.Detail = nil
	a := p.guests.keep(e.Receipt, t, asked)
	if a == nil {
		return Extended{Err: ErrLentElsewhere}
	}
	e.note(a)
	return Extended{Until: until, Cancelled: cancelled}
}

// had reports whether the puller has or had an identity.
func (p *Puller) had(worker ID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.names[worker]
}

// keep records until when a guest is extended. It returns nil if the limit is reached. A tenant may have as many
// guests as there are free places, so no tenant can take all of them: the dynamic thresholds of A. K. Choudhury and
// E. L. Hahne.
func (g *guests) keep(r Receipt, t *store.Task, until time.Time) *run.Attempt {
	g.mu.Lock()
	defer g.mu.Unlock()
	one := g.of[r]
	if one == nil {
		if g.tenants[t.Tenant] >= mostGuests-len(g.of) {
			return nil
		}
		one = &guest{Attempt: &run.Attempt{Task: t}}
		g.of[r] = one
		g.tenants[t.Tenant]++
	}
	one.until = until
	g.asked++
	return one.Attempt
}

// write stores all extensions from before the call. Calls that arrive during a write share the next one.
func (g *guests) write(ctx context.Context) error {
	g.mu.Lock()
	asked := g.asked
	g.mu.Unlock()
	select {
	case g.turn <- struct{}{}:
		defer func() { <-g.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	g.mu.Lock()
	done, pause := g.written >= asked, guestPause-time.Since(g.last)
	g.mu.Unlock()
	if done {
		return nil
	}
	if pause > 0 {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	now := time.Now()
	left := map[string]int64{}
	g.mu.Lock()
	asked = g.asked
	for r, one := range g.of {
		if l := one.until.Sub(now); l > 0 {
			left[r.String()] = l.Milliseconds()
		}
	}
	g.mu.Unlock()
	body, err := json.Marshal(left)
	if err == nil {
		err = g.store(ctx, body)
	}
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.written, g.last = asked, now
	return nil
}

// store writes the record.
func (g *guests) store(ctx context.Context, body []byte) error {
	for {
		r := store.Record{Kind: guestRecord, Name: g.name, Version: g.version, Body: body}
		version, _, err := g.client.store.PutRecord(ctx, store.PutRecord{Record: r})
		if err == nil {
			g.version, g.tidied = version, g.tidied || g.tidy(ctx) == nil
			return nil
		}
		if !errors.Is(err, ErrConflict) {
			return err
		}
		if r, err = g.client.record(ctx, guestRecord, g.name); err != nil { // the answer to a write was lost
			return err
		}
		g.version = r.Version
	}
}

// tidy deletes the records of processes that have long stopped.
func (g *guests) tidy(ctx context.Context) error {
	all, err := g.client.store.Records(ctx, store.RecordFilter{Kind: guestRecord})
	now := recordOf(all, guestRecord, g.name).UpdatedAt // by the clock that wrote the others
	for _, r := range all {
		if err == nil && r.UpdatedAt.Before(now.Add(-guestsOld)) {
			r.Body = nil
			if _, _, err = g.client.store.PutRecord(ctx, store.PutRecord{Record: r}); errors.Is(err, ErrConflict) {
				err = nil
			}
		}
	}
	return err
}

// heed prolongs the loans that other pullers have extended.
func (p *Puller) heed(ctx context.Context) error {
	records, err := p.client.store.Records(ctx, store.RecordFilter{Kind: guestRecord})
	if len(records) == 0 || err != nil {
		return err
	}
	now, err := p.client.Now(ctx) // by the clock that wrote the records
	if err != nil {
		return err
	}
	for _, record := range records {
		var left map[string]int64
		if err := json.Unmarshal(record.Body, &left); err != nil { // it is useless, and others may be readable
			p.client.config.Logger.Error("pull: a record of extended leases cannot be read", "record", record.Name, "error", err)
		}
		for text, ms := range left {
			if r, err := ParseReceipt(text); err == nil {
				p.prolong(r, time.Duration(ms)*time.Millisecond-now.Sub(record.UpdatedAt))
			}
		}
	}
	return nil
}

// prolong extends a loan, if it is one of this puller's.
func (p *Puller) prolong(r Receipt, by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lent[r]
	if l == nil || l.ending() {
		return
	}
	if until := l.bound(time.Now().Add(by)); until.After(l.until) {
		l.until = until
	}
}

// drop forgets a guest that has ended, or may have.
func (g *guests) drop(r Receipt) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.remove(r)
}

// expire forgets guests whose time is over.
func (g *guests) expire() {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	for r, one := range g.of {
		if now.After(one.until) {
			g.remove(r)
		}
	}
}

// remove forgets a guest. The caller holds the lock.
func (g *guests) remove(r Receipt) {
	one := g.of[r]
	if one == nil {
		return
	}
	delete(g.of, r)
	tenant := one.Task.Tenant
	if g.tenants[tenant]--; g.tenants[tenant] == 0 {
		delete(g.tenants, tenant)
	}
}

// attempt returns what is known about a guest, or nil.
func (g *guests) attempt(r Receipt) *run.Attempt {
	g.mu.Lock()
	defer g.mu.Unlock()
	if one := g.of[r]; one != nil {
		return one.Attempt
	}
	return nil
}

func (g *guests) attempts() (all []*run.Attempt) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, one := range g.of {
		all = append(all, one.Attempt)
	}
	return all
}
