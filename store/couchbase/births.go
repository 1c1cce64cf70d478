package couchbase

import (
	"context"
	"errors"
	"slices"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// A call that stores a workflow stores tasks before those that they need. If its process dies in between, they wait
// for tasks that never come. So the call first writes down, in a document among the keys, which tasks will wait, and
// removes that document once all tasks are stored. The sweep finds the document of a call that has died, and tells
// those of its tasks that are there that what they need is not.

var errAdopted = errors.New("storing a workflow took so long that it was given up")

// insertGraph stores new tasks of which some need others.
func (s *Store) insertGraph(ctx context.Context, levels [][]*doc) error {
	births := &key{head: head{Todo: s.now(ctx)}}
	for _, level := range levels[:len(levels)-1] {
		for _, d := range level {
			births.Births = append(births.Births, d.ID)
		}
	}
	d := &doc{ref: ref{inKey, "births|" + nonce()}, body: births} // no key is named so: see named
	if err := s.insert(ctx, d); err != nil {
		return err
	}
	if err := s.insertLevels(ctx, levels); err != nil {
		return err
	}
	gone, err := s.remove(ctx, d)
	if err == nil && !gone {
		err = errAdopted
	}
	return err
}

// adopt takes care of the tasks of a call that has died. To write the document first makes the call fail if it lives
// after all.
func (s *Store) adopt(ctx context.Context, births *doc) error {
	if ok, err := s.replace(ctx, births, s.durability); !ok || err != nil {
		return err
	}
	ids := births.key().Births
	freed := make([][]*task, len(ids))
	err := each(len(ids), func(i int) (err error) {
		freed[i], err = s.tellOfMissing(ctx, ids[i])
		return err
	})
	if err == nil {
		err = s.queueUp(ctx, slices.Concat(freed...)...)
	}
	if err == nil {
		_, err = s.remove(ctx, births)
	}
	return err
}

// tellOfMissing tells a task which of those that it needs are not there, and returns it if it may run now.
func (s *Store) tellOfMissing(ctx context.Context, id string) ([]*task, error) {
	w := &work{}
	err := s.do(ctx, w, func(b *rules.Batch) error {
		w.edges = nil
		d, err := w.load(ref{inTask, id})
		if d == nil || err != nil {
			return err
		}
		var missing []store.ID
		for _, n := range d.task().openNeeds() {
			if !n.Open {
				continue
			}
			parent, err := s.read(ctx, taskRef(n.Task))
			if err != nil {
				return err
			}
			if parent == nil {
				missing = append(missing, n.Task)
				w.edges = append(w.edges, rules.Edge{Child: idOf(id), Need: n.Need})
			}
		}
		for _, parent := range missing {
			if err := b.Tell(parent, 0); err != nil {
				return err
			}
		}
		return nil
	})
	return w.ready, err
}

// insertAll stores new tasks: those that need others before what they need, so that nothing ends before its children
// are known.
func (s *Store) insertAll(ctx context.Context, made []*doc) error {
	if all := levels(made); len(all) > 1 {
		return s.insertGraph(ctx, all)
	}
	return s.insertLevels(ctx, [][]*doc{made})
}

func (s *Store) insertLevels(ctx context.Context, levels [][]*doc) error {
	for _, level := range levels {
		if err := each(len(level), func(i int) error { return s.insert(ctx, level[i]) }); err != nil {
			return err
		}
	}
	return nil
}

// levels sorts new tasks by how many others stand above them, the deepest first.
func levels(made []*doc) [][]*doc {
	of := map[string]*doc{}
	depth := map[string]int{}
	for _, d := range made {
		of[d.ID] = d
	}
	var deep func(d *doc) int
	deep = func(d *doc) int {
		if n, known := depth[d.ID]; known {
			return n
		}
		n := 0
		depth[d.ID] = n // restored tasks may have needed each other
		for _, needs := range d.task().Needs {
			if parent := of[needs.Task.String()]; parent != nil && parent != d {
				n = max(n, deep(parent)+1)
			}
		}
		depth[d.ID] = n
		return n
	}
	var all [][]*doc
	for _, d := range made {
		for len(all) <= deep(d) {
			all = append(all, nil)
		}
		all[deep(d)] = append(all[deep(d)], d)
	}
	for i, j := 0, len(all)-1; i < j; i, j = i+1, j-1 {
		all[i], all[j] = all[j], all[i]
	}
	return all
}
