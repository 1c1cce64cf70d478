// Package rules decides what follows from an enqueue, the end of an attempt, an edit, and a chore: which state a task
// takes, which task holds a key, and which other tasks become available, are cancelled or superseded. Each rule that
// every engine must follow is written here, once, as a pure function of what an engine has read.
//
// An engine creates a Batch over a Source, which reads and locks what the Batch requests, in sets. It calls one or
// more operations of the Batch and then writes what the Batch holds: tasks before and after, keys, ended attempts,
// needs. The result is data. Every change includes the state that it started from, so an engine can apply changes in
// sets, or compare first.
//
// The enqueue, claim and completion of plain tasks, which have no consequences, are the engine's own code, because
// they happen millions of times.
//
// This package may import only package store, and does no I/O.
package rules

import (
	"cmp"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Row is what the rules know about a task. An engine need not read its values (args, tags, settings).
type Row struct {
	store.Task
	Open       int    // number of needs that are not met yet
	Needs      bool   // it needs other tasks, or did
	Needed     bool   // other tasks may need it
	Awaits     bool   // pending until the running task of its key has ended
	HasTurn    bool   // it was granted its turn
	Stopping   bool   // running, and asked to stop
	StopReason string // the reason given with that request

	// Changed is what the batch records about the task for its Detail; nil means no change.
	Changed *store.LastChange
	// Values says that kind, args, tags, settings or expiry are new.
	Values bool
	// Restored says that the task is new here but has already ended: its Detail is its history.
	Restored bool
	// Place orders the tasks of a batch that move to the end of the tasks in their state, starting from 1. Zero means
	// that the task keeps its place.
	Place int
}

// InLine reports whether a task waits only for its turn.
func (r *Row) InLine() bool {
	return r.State == store.Pending && r.Turn && !r.HasTurn && r.Open == 0 && !r.Awaits
}

// key returns the name of the task's key in its queue.
func (r *Row) key() KeyName { return KeyName{r.Queue, r.Tenant, r.Key} }

// KeyName is the name of a key in its queue and tenant.
type KeyName struct{ Queue, Tenant, Key string }

// Key is what is known about a key.
type Key struct {
	KeyName
	Holder   store.ID  // the unfinished task; zero if none
	Awaiting store.ID  // runs after the running holder has ended; zero if none
	Ended    store.ID  // the task that ended last; zero if none has, or it was deleted
	Source   time.Time // the newest source time seen; zero if none
	// Tasks is the number of tasks that have the key, including finished ones. The key is deleted with the last one.
	Tasks int64
}

// Edge is the need of one task for another.
type Edge struct {
	Child store.ID
	store.Need
}

// Change is a task before and after a batch.
type Change struct {
	Before *Row // nil if the task is new
	After  *Row // nil if the task is deleted, with its history
}

// End is an attempt that ended.
type End struct {
	Task    *Row           // after the end
	Outcome *store.Outcome // as the worker reported it
	Attempt store.Attempt  // for the task's history; its Outcome is where the task went
	Waited  time.Duration  // from when the task was due until it was claimed
}

// NewNeeds are the needs of a task from now on. They replace its earlier needs.
type NewNeeds struct {
	Child store.ID
	Needs []OpenNeed
}

// OpenNeed is a need that may still be open.
type OpenNeed struct {
	store.Need
	Open bool
}

// Met is a need that is no longer open.
type Met struct{ Child, Parent store.ID }

// Batch applies the rules to what an engine has read, and holds what to write. It is not safe for concurrent use.
type Batch struct {
	Now    time.Time     // by the engine's clock, read after its locks were taken
	Behind time.Duration // how far Now may be behind that clock

	Ends  []*End      // attempts that ended, in order
	Needs []*NewNeeds // new needs of tasks
	Met   []Met       // needs that are no longer open
	// Doubts are pending tasks to pass to Doom, because a task that they need may have failed.
	Doubts []store.ID

	source   Source
	changes  []*Change
	tasks    map[store.ID]*Change // the requested tasks; an empty Change means that the task does not exist
	keys     []*keyChange
	named    map[KeyName]*keyChange
	needed   map[store.ID][]OpenNeed // by task, as read
	children map[store.ID][]Edge     // open needs by the needed task, as read
	anew     map[store.ID]*NewNeeds  // the entries of Needs
	parents  map[store.ID][]Edge     // new open needs, by the needed task
	met      map[Met]bool            // the entries of Met
	places   int

	elsewhere map[store.ID]store.State // of tasks that the source cannot read
}

type keyChange struct{ before, after Key }

// New returns an empty batch that reads from source.
func New(now time.Time, source Source) *Batch {
	return &Batch{
		Now: now, source: source,
		tasks: map[store.ID]*Change{{}: {}}, named: map[KeyName]*keyChange{},
		needed: map[store.ID][]OpenNeed{}, children: map[store.ID][]Edge{},
		anew: map[store.ID]*NewNeeds{}, parents: map[store.ID][]Edge{}, met: map[Met]bool{},
		elsewhere: map[store.ID]store.State{},
	}
}

// Changes returns the tasks that the batch has added, changed or deleted. Those that move to a new place come last,
// in the order of their places.
func (b *Batch) Changes() []Change {
	var all []Change
	for _, c := range b.changes {
		if c.Before == nil && c.After == nil || c.Before != nil && c.After != nil && c.After.same(c.Before) {
			continue
		}
		all = append(all, *c)
	}
	slices.SortStableFunc(all, func(a, b Change) int { return cmp.Compare(a.place(), b.place()) })
	return all
}

func (c *Change) place() int {
	if c.After == nil {
		return 0
	}
	return c.After.Place
}

// Keys returns the keys that have changed, and by how much the number of tasks of each has changed.
func (b *Batch) Keys() (changed []Key, tasks []int64) {
	for _, k := range b.keys {
		if k.after != k.before {
			changed, tasks = append(changed, k.after), append(tasks, k.after.Tasks-k.before.Tasks)
		}
	}
	return changed, tasks
}

// same reports whether nothing that an engine stores has changed.
func (r *Row) same(was *Row) bool {
	return r.Place == 0 && !r.Values && r.State == was.State && r.Reason == was.Reason && r.RunAt.Equal(was.RunAt) &&
		r.Open == was.Open && r.Needs == was.Needs && r.Needed == was.Needed && r.Awaits == was.Awaits &&
		r.HasTurn == was.HasTurn && r.Stopping == was.Stopping && r.StopReason == was.StopReason
}

// task returns a task as the batch has it, or nil if it does not exist.
func (b *Batch) task(id store.ID) (*Row, error) {
	if _, known := b.tasks[id]; !known {
		if err := b.read(Want{Tasks: []store.ID{id}}); err != nil {
			return nil, err
		}
	}
	return b.tasks[id].After, nil
}

// state returns a task and its state. The state is 0 if the task does not exist.
func (b *Batch) state(id store.ID) (*Row, store.State, error) {
	r, err := b.task(id)
	if r == nil || err != nil {
		return nil, b.elsewhere[id], err
	}
	return r, r.State, nil
}

// add adds a new task to the batch.
func (b *Batch) add(r *Row) {
	c := &Change{After: r}
	b.tasks[r.ID] = c
	b.changes = append(b.changes, c)
}

// key returns what is known about a key, or nil if the name has no key.
func (b *Batch) key(name KeyName) (*Key, error) {
	if name.Key == "" {
		return nil, nil
	}
	if _, known := b.named[name]; !known {
		if err := b.read(Want{Keys: []KeyName{name}}); err != nil {
			return nil, err
		}
	}
	return &b.named[name].after, nil
}

// changed records that a waiting task was changed, and how.
func (b *Batch) changed(r *Row, how store.How) { r.Changed = &store.LastChange{At: b.Now, How: how} }

// put gives a task a state and puts it at the end of the tasks in that state.
func (b *Batch) put(r *Row, state store.State) {
	b.places++
	r.State, r.Place = state, b.places
}

// putDue makes a task available if it is due, or else makes it wait: pending while a need is open, in the given state
// until its run time, and pending again until its turn.
func (b *Batch) putDue(r *Row, wait store.State) {
	switch {
	case r.Open > 0:
		b.put(r, store.Pending)
	case r.RunAt.After(b.Now):
		b.put(r, wait)
	case r.Turn && !r.HasTurn:
		b.put(r, store.Pending)
	default:
		r.RunAt = b.Now
		b.put(r, store.Available)
	}
}
