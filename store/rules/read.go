package rules

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/tuskqueue/tusk/store"
)

// Want names what a batch has to read. Each list is sorted and free of duplicates, and a batch never requests
// anything twice. An engine that locks rows takes the locks of one Want in the order of its fields and lists.
type Want struct {
	Keys     []KeyName
	Tasks    []store.ID
	Needs    []store.ID // tasks whose needs to read
	Children []store.ID // tasks whose open dependents to read
}

// Found is the answer to a Want. It omits what does not exist. The batch changes copies of the rows, never the rows
// themselves.
type Found struct {
	Keys     []Key
	Tasks    []*Row
	Needs    []OwnNeed // for each task, in the order in which they were given
	Children []Edge    // for each task, in the order in which they were stored

	// Elsewhere holds the states of requested tasks that the source cannot read. The batch uses them only for needs;
	// otherwise it treats such tasks as missing.
	Elsewhere []Elsewhere
}

// Elsewhere is the known state of a task that the source cannot read.
type Elsewhere struct {
	Task store.ID
	// State may be any unfinished state if the task has not ended.
	State store.State
}

// OwnNeed is a need with the task that has it.
type OwnNeed struct {
	Child store.ID
	OpenNeed
}

// Source reads what a batch requests, under the engine's locks. An operation reads in at most three rounds, whatever
// the number of its tasks: the tasks and keys it was given, what those refer to, and the tasks that this refers to.
// An error ends the operation.
type Source interface {
	Read(w *Want) (*Found, error)
}

// read reads those parts of w that are not known yet.
func (b *Batch) read(w Want) error {
	w.Keys = sorted(w.Keys, KeyName.compare, func(n KeyName) bool { return n.Key == "" || b.named[n] != nil })
	w.Tasks = sorted(w.Tasks, byID, func(id store.ID) bool { return b.tasks[id] != nil })
	w.Needs = sorted(w.Needs, byID, func(id store.ID) bool { _, known := b.needed[id]; return known })
	w.Children = sorted(w.Children, byID, func(id store.ID) bool { _, known := b.children[id]; return known })
	if len(w.Keys)+len(w.Tasks)+len(w.Needs)+len(w.Children) == 0 {
		return nil
	}
	found, err := b.source.Read(&w)
	if err != nil {
		return err
	}
	b.know(&w, found)
	return nil
}

// know stores what was found.
func (b *Batch) know(w *Want, found *Found) {
	for _, name := range w.Keys {
		b.named[name] = &keyChange{Key{KeyName: name}, Key{KeyName: name}}
		b.keys = append(b.keys, b.named[name])
	}
	for _, k := range found.Keys {
		*b.named[k.KeyName] = keyChange{k, k}
	}
	for _, id := range w.Tasks {
		b.tasks[id] = &Change{}
	}
	for _, r := range found.Tasks {
		after, c := *r, b.tasks[r.ID]
		c.Before, c.After = r, &after
		b.changes = append(b.changes, c)
	}
	for _, e := range found.Elsewhere {
		b.elsewhere[e.Task] = e.State
	}
	for _, id := range w.Needs {
		b.needed[id] = nil
	}
	for _, n := range found.Needs {
		b.needed[n.Child] = append(b.needed[n.Child], n.OpenNeed)
	}
	for _, id := range w.Children {
		b.children[id] = nil
	}
	for _, e := range found.Children {
		b.children[e.Task] = append(b.children[e.Task], e)
	}
}

// reach reads w, and everything that ending or changing the tasks in of touches: their keys, the tasks of those keys,
// and the tasks that need them. With needs it also reads the tasks that they need.
func (b *Batch) reach(w Want, of []store.ID, needs bool) error {
	w.Tasks = append(w.Tasks, of...)
	if err := b.read(w); err != nil {
		return err
	}
	next := b.around(of, needs)
	next.Tasks = b.holders(w.Keys)
	if err := b.read(next); err != nil {
		return err
	}
	return b.read(Want{Tasks: append(b.holders(next.Keys), b.behind(&next)...)})
}

// around returns what belongs to tasks: their keys, the tasks that need them and, with needs, the tasks that they
// need.
func (b *Batch) around(of []store.ID, needs bool) (w Want) {
	for _, id := range of {
		r := b.tasks[id].After
		if r == nil {
			continue
		}
		w.Keys = append(w.Keys, r.key())
		if r.Needed {
			w.Children = append(w.Children, id)
		}
		if needs && r.Needs {
			w.Needs = append(w.Needs, id)
		}
	}
	return w
}

// behind returns the tasks that the children and needs refer to.
func (b *Batch) behind(w *Want) (tasks []store.ID) {
	for _, id := range w.Children {
		for _, e := range b.children[id] {
			tasks = append(tasks, e.Child)
		}
	}
	for _, id := range w.Needs {
		for _, n := range b.needed[id] {
			tasks = append(tasks, n.Task)
		}
	}
	return tasks
}

// holders returns the tasks that hold the keys, and those that await them.
func (b *Batch) holders(names []KeyName) (tasks []store.ID) {
	for _, name := range names {
		if k := b.named[name]; k != nil {
			tasks = append(tasks, k.after.Holder, k.after.Awaiting)
		}
	}
	return tasks
}

// sorted returns the elements that are not known, sorted and without duplicates.
func sorted[T comparable](all []T, compare func(a, b T) int, known func(T) bool) []T {
	all = slices.DeleteFunc(slices.Clone(all), known)
	slices.SortFunc(all, compare)
	return slices.Compact(all)
}

func byID(a, b store.ID) int { return bytes.Compare(a[:], b[:]) }

func (n KeyName) compare(o KeyName) int {
	return cmp.Or(cmp.Compare(n.Queue, o.Queue), cmp.Compare(n.Tenant, o.Tenant), cmp.Compare(n.Key, o.Key))
}
