package bulk

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Store is the part of a store that operations need.
type Store interface {
	store.Editor
	store.Recorder
	List(ctx context.Context, f store.Filter) ([]store.Task, error)
}

// Options of a Carrier. ID, Patience and Log are required.
type Options struct {
	ID store.ID // of the carrier; must be new
	// Patience is how long an operation of another process may show no progress before this carrier
	// takes it over. It should be the same in all processes.
	Patience time.Duration
	Only     store.ID          // carry out only this operation; zero means all
	Tell     func(o Operation) // called with each operation that was read; may be nil
	Log      *slog.Logger
}

// Carrier carries out operations. One carrier at a time carries out an operation: the first to
// write its ID into the record. A carrier that stops writing loses the operation to another one,
// which measures the time by its own clock.
type Carrier struct {
	store  Store
	o      Options
	others map[store.ID]sighting  // last seen progress of other carriers' operations
	due    map[store.ID]time.Time // when the next page of a throttled operation is due
	pace   pace
	told   time.Time // when Keep last logged failures
}

// sighting is a version of an operation's record and when it was first seen.
type sighting struct {
	version int64
	since   time.Time
}

// New returns a carrier.
func New(s Store, o Options) *Carrier {
	return &Carrier{store: s, o: o, others: map[store.ID]sighting{}, due: map[store.ID]time.Time{},
		pace: pace{size: firstOnPage}}
}

const (
	every   = time.Second            // how often a carrier reads the operations
	longest = 500 * time.Millisecond // how long a step takes, unless its pages are slow
	tell    = 5 * time.Second        // how often Keep logs failures
)

// Step reads all operations and changes some pages of those that are this carrier's. It returns the
// pause before the next step.
func (c *Carrier) Step(ctx context.Context) (pause time.Duration, err error) {
	pause, failed, err := c.step(ctx)
	return pause, errors.Join(failed, err)
}

// Keep is Step for a loop. If an operation cannot be carried out, Keep logs that and continues with
// the others.
func (c *Carrier) Keep(ctx context.Context) (pause time.Duration, err error) {
	pause, failed, err := c.step(ctx)
	if failed != nil && time.Since(c.told) >= tell {
		c.o.Log.Warn("operate", "error", failed)
		c.told = time.Now()
	}
	return pause, err
}

// step is Step, but returns the failures of single operations separately.
func (c *Carrier) step(ctx context.Context) (pause time.Duration, failed, err error) {
	records, err := c.store.Records(ctx, store.RecordFilter{Kind: RecordKind})
	if err != nil {
		return 0, nil, err
	}
	newestFirst(records)
	var mine []carried
	others := map[store.ID]sighting{}
	for i, r := range records {
		if !c.o.Only.IsZero() && c.o.Only.String() != r.Name {
			continue
		}
		o, err := Read(r)
		switch {
		case err != nil:
			failed = errors.Join(failed, err)
		case o.Ended():
			c.forget(ctx, r, o, i)
		case c.takes(o, r.Version, others):
			mine = append(mine, carried{o, r.Version})
		default:
			c.tell(o)
		}
	}
	c.others = others
	pause = every
	slices.Reverse(mine) // oldest first
	for i := range mine {
		wait, err := c.carry(ctx, &mine[i], longest/time.Duration(len(mine)))
		pause, failed = min(pause, wait), errors.Join(failed, err)
	}
	return pause, failed, ctx.Err()
}

// Release hands this carrier's operations over, so that other carriers need not wait for Patience.
// No step may be running.
func (c *Carrier) Release(ctx context.Context) error {
	records, err := c.store.Records(ctx, store.RecordFilter{Kind: RecordKind})
	if err != nil {
		return err
	}
	for _, r := range records {
		o, err := Read(r)
		if err != nil || o.Ended() || o.Holder != c.o.ID {
			continue
		}
		o.Holder = store.ID{}
		if _, err := Put(ctx, c.store, o, r.Version); err != nil && !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return nil
}

// carried is an operation of this carrier, with the version of its record.
type carried struct {
	Operation
	version int64
}

// takes reports whether this carrier should carry out an operation: it does so already, no other
// carrier does, or the one that did no longer makes progress.
func (c *Carrier) takes(o Operation, version int64, others map[store.ID]sighting) bool {
	if o.Holder.IsZero() || o.Holder == c.o.ID {
		return true
	}
	seen, known := c.others[o.ID]
	if !known || seen.version != version {
		seen = sighting{version, time.Now()}
	}
	others[o.ID] = seen
	return time.Since(seen.since) > c.o.Patience
}

// forget handles an operation that has ended, and deletes its record if it is old.
func (c *Carrier) forget(ctx context.Context, r store.Record, o Operation, place int) {
	delete(c.due, o.ID)
	c.tell(o)
	if place >= keep && c.o.Only.IsZero() {
		r.Body = nil
		_, _, _ = c.store.PutRecord(ctx, store.PutRecord{Record: r}) // the next step retries
	}
}

var errTaken = errors.New("taken over by another process")

// carry changes pages until turn has passed, at least one, and saves the progress after each. It
// returns the time until the next page is due.
func (c *Carrier) carry(ctx context.Context, o *carried, turn time.Duration) (time.Duration, error) {
	if o.Holder != c.o.ID {
		c.o.Log.Debug("operation: carry on", "operation", o.ID, "holder", o.Holder)
		o.Holder = c.o.ID
		if err := c.save(ctx, o); err != nil {
			return every, unlessTaken(err)
		}
	}
	for began := time.Now(); ; {
		if wait := time.Until(c.due[o.ID]); wait > 0 {
			return wait, nil
		}
		failed := c.page(ctx, o)
		if err := c.save(ctx, o); err != nil || failed != nil {
			return every, errors.Join(failed, unlessTaken(err))
		}
		if c.tell(o.Operation); o.Ended() {
			delete(c.due, o.ID)
			return every, nil
		}
		if time.Since(began) >= turn {
			return 0, nil
		}
	}
}

// page reads the next tasks and changes those that the operation may change.
func (c *Carrier) page(ctx context.Context, o *carried) error {
	if o.CancelRequested {
		o.State = Cancelled
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.o.Patience*2/3)
	defer cancel()
	err := c.change(ctx, &o.Operation)
	if o.Error = ""; err != nil {
		o.Error = err.Error()
		c.pace.fail()
	}
	return err
}

func (c *Carrier) change(ctx context.Context, o *Operation) error {
	began, f := time.Now(), o.page(c.pace.size)
	tasks, err := c.store.List(ctx, f)
	if err != nil {
		return err
	}
	var ids []store.ID
	for i := range tasks {
		if o.sees(&tasks[i]) {
			ids = append(ids, tasks[i].ID)
		}
	}
	if len(ids) > 0 {
		edited, err := c.store.Edit(ctx, store.Edit{IDs: ids, Change: o.Change})
		if err != nil && !store.OnlyHeld(err) { // held tasks were refused
			if held := new(store.HeldError); errors.As(err, &held) {
				o.countUntil(held.Tasks, tasks, edited)
			}
			return err
		}
		o.count(edited)
	}
	c.pace.learn(len(tasks), time.Since(began))
	if o.PerSecond > 0 {
		c.due[o.ID] = time.Now().Add(time.Second * time.Duration(len(ids)) / time.Duration(o.PerSecond))
	}
	if len(tasks) > 0 {
		o.Cursor = tasks[len(tasks)-1].ID
	}
	if len(tasks) < f.Limit || o.Limit > 0 && o.Seen >= o.Limit {
		o.State = Done
	}
	return nil
}

// save writes the progress. If another process changed the record meanwhile, it either cancelled
// the operation or took it over.
func (c *Carrier) save(ctx context.Context, o *carried) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.o.Patience/3)
	defer cancel()
	for {
		version, err := Put(ctx, c.store, o.Operation, o.version)
		if !errors.Is(err, store.ErrConflict) {
			o.version = version
			return err
		}
		stored, found, err := Find(ctx, c.store, o.ID)
		switch {
		case err != nil:
			return err
		case stored.Holder != c.o.ID:
			return errTaken
		}
		o.CancelRequested, o.version = stored.CancelRequested, found
	}
}

func unlessTaken(err error) error {
	if errors.Is(err, errTaken) {
		return nil
	}
	return err
}

func (c *Carrier) tell(o Operation) {
	if c.o.Tell != nil {
		c.o.Tell(o)
	}
}
