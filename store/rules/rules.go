// Package rules says what follows from an enqueue, from the end of an attempt, from an
// edit, and from a chore: which state a task takes, who holds a key, which other tasks
// are set free, cancelled or superseded. Each rule of the contract that every engine
// must keep alike is written here, once, as a pure function over what an engine has read.
//
// An engine makes a Batch over a Source, which reads and locks what the Batch asks for, in
// sets. It calls one or more of the Batch's verbs and writes what the Batch then holds: tasks
// as they were and as they are, keys, ended attempts, needs. The result is data, and every
// change holds the state that it started from, so that an engine can apply it in sets, or
// compare first.
//
// What an engine does millions of times stays its own: the enqueue, claim and completion
// of plain tasks, which have no consequences.
//
// It may import package store alone, and does no I/O. Data goes from here back to the
// engine that asked.
package rules

import (
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Row is a task as the rules see it. Of its values (args, tags, settings) an engine needs
// to read none.
type Row struct {
	store.Task
	Open       int    // how many of the tasks that it needs have not ended as it needs
	Needs      bool   // it needs others, or did
	Needed     bool   // other tasks may need it
	Awaits     bool   // pending until the running task of its key has ended
	HasTurn    bool   // it was granted its turn
	Stopping   bool   // running, and somebody asked it to stop
	StopReason string // the reason that they gave

	// Changed is what the batch notes about the task for its Detail; nil: nothing.
	Changed *store.LastChange
	// Values says that kind, args, tags, settings or expiry are new.
	Values bool
	// Restored says that the task is new and has ended before: its Detail is its history.
	Restored bool
	// Place orders the tasks of a batch that go to the end of where their state puts
	// them, from 1 on. Zero: the task stays where it is.
	Place int
}

// InLine reports whether a task waits for its turn and for nothing else.
func (r *Row) InLine() bool {
	return r.State == store.Pending && r.Turn && !r.HasTurn && r.Open == 0 && !r.Awaits
}

// key names the key that a task has in its queue.
func (r *Row) key() KeyName { return KeyName{r.Queue, r.Tenant, r.Key} }

// KeyName is what a key is unique by.
type KeyName struct{ Queue, Tenant, Key string }

// Key is what is known of a key.
type Key struct {
	KeyName
	Holder   store.ID  // the unfinished task; zero: none
	Awaiting store.ID  // runs when the running holder has ended; zero: none
	Ended    store.ID  // the task that ended last; zero: none has, or it is deleted
	Source   time.Time // the newest source time seen; zero: none
	Tasks    int64     // how many tasks have the key, finished ones too; it is forgotten with the last
}

// Edge is the need of one task for another.
type Edge struct {
	Child store.ID
	store.Need
}

// Change is a task before and after a batch.
type Change struct {
	Before *Row // nil: it is new
	After  *Row // nil: it is deleted, with its history
}

// End is an attempt that ended.
type End struct {
	Task    *Row           // after the end
	Outcome *store.Outcome // as the worker gave it
	Attempt store.Attempt  // for the task's history; its Outcome is where the task went
	Waited  time.Duration  // from when the task was due until it was claimed
}

// NewNeeds are what a task needs from now on, in place of what it needed before.
type NewNeeds struct {
	Child store.ID
	Needs []OpenNeed
}

// OpenNeed is a need, and whether it is still open.
type OpenNeed struct {
	store.Need
	Open bool
}

// Met is a need that is open no more.
type Met struct{ Child, Parent store.ID }

// Batch applies rules to what an engine has read, and holds what is to be written. It is
// not safe for concurrent use.
type Batch struct {
	Now    time.Time     // by the engine's clock, read after its locks were taken
	Behind time.Duration // by how much Now may be behind that clock

	Ends   []*End      // attempts that ended, in order
	Needs  []*NewNeeds // what tasks need, where that is new
	Met    []Met       // needs that are open no more
	Doubts []store.ID  // pending tasks to be shown to Doom: something that they need may have failed

	source   Source
	changes  []*Change
	tasks    map[store.ID]*Change // those asked for; an empty Change: there is no such task
	keys     []*keyChange
	named    map[KeyName]*keyChange
	needed   map[store.ID][]OpenNeed // by task, as they were read
	children map[store.ID][]Edge     // open needs by what is needed, as they were read
	anew     map[store.ID]*NewNeeds  // those in Needs
	parents  map[store.ID][]Edge     // open needs that are new, by what is needed
	met      map[Met]bool            // those in Met
	places   int

	elsewhere map[store.ID]store.State // of tasks that the source does not reach
}

type keyChange struct{ before, after Key }

// New makes a batch over what an engine has read.
func New(now time.Time, source Source) *Batch {
	return &Batch{
		Now: now, source: source,
		tasks: map[store.ID]*Change{{}: {}}, named: map[KeyName]*keyChange{},
		needed: map[store.ID][]OpenNeed{}, children: map[store.ID][]Edge{},
		anew: map[store.ID]*NewNeeds{}, parents: map[store.ID][]Edge{}, met: map[Met]bool{},
		elsewhere: map[store.ID]store.State{},
	}
}

// Changes returns the tasks that the batch has added, changed or deleted, in the order in
// which it met them.
func (b *Batch) Changes() []Change {
	var all []Change
	for _, c := range b.changes {
		if c.Before == nil && c.After == nil || c.Before != nil && c.After != nil && c.After.same(c.Before) {
			continue
		}
		all = append(all, *c)
	}
	return all
}

// Keys returns the keys that have changed, and by how much their number of tasks has.
func (b *Batch) Keys() (changed []Key, tasks []int64) {
	for _, k := range b.keys {
		if k.after != k.before {
			changed, tasks = append(changed, k.after), append(tasks, k.after.Tasks-k.before.Tasks)
		}
	}
	return changed, tasks
}

// same reports whether nothing that an engine writes has changed.
func (r *Row) same(was *Row) bool {
	return r.Place == 0 && !r.Values && r.State == was.State && r.Reason == was.Reason && r.RunAt.Equal(was.RunAt) &&
		r.Open == was.Open && r.Needs == was.Needs && r.Needed == was.Needed && r.Awaits == was.Awaits &&
		r.HasTurn == was.HasTurn && r.Stopping == was.Stopping && r.StopReason == was.StopReason
}

// task returns a task as the batch has it; nil: there is none.
func (b *Batch) task(id store.ID) (*Row, error) {
	if _, known := b.tasks[id]; !known {
		if err := b.read(Want{Tasks: []store.ID{id}}); err != nil {
			return nil, err
		}
	}
	return b.tasks[id].After, nil
}

// state returns the state of a task, with the task; 0: there is none.
func (b *Batch) state(id store.ID) (*Row, store.State, error) {
	r, err := b.task(id)
	if r == nil || err != nil {
		return nil, b.elsewhere[id], err
	}
	return r, r.State, nil
}

// add makes a new task known.
func (b *Batch) add(r *Row) {
	c := &Change{After: r}
	b.tasks[r.ID] = c
	b.changes = append(b.changes, c)
}

// key returns what is known of a key; nil: the name is that of a task without one.
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

// changed notes that a waiting task is another than it was, and by what.
func (b *Batch) changed(r *Row, how store.How) { r.Changed = &store.LastChange{At: b.Now, How: how} }

// put gives a task a state, at the end of where the tasks of that state are.
func (b *Batch) put(r *Row, state store.State) {
	b.places++
	r.State, r.Place = state, b.places
}

// putDue makes a task available or has it wait: pending while a need is open, in the given
// state while its run time has not come, then pending again for its turn.
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
