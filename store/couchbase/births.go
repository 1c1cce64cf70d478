package couchbase

import (
	"context"
	"errors"
	"slices"

	"github.com/tuskqueue/tusk/store"
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
	if err := inLevels(ctx, levels, s.insert); err != nil {
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
		freed[i], err = s.hear(ctx, &work{}, ref{inTask, ids[i]}, func(parent store.ID) (store.State, bool, error) {
			is, err := s.locate(ctx, taskRef(parent))
			return 0, is == nil, err
		})
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

// insertAll stores new tasks: those that need others before what they need, so that nothing ends before its children
// are known.
func (s *Store) insertAll(ctx context.Context, made []*doc) error {
	if all := levels(made); len(all) > 1 {
		return s.insertGraph(ctx, all)
	}
	return inLevels(ctx, [][]*doc{made}, s.insert)
}

func inLevels(ctx context.Context, levels [][]*doc, store func(context.Context, *doc) error) error {
	for _, level := range levels {
		if err := each(len(level), func(i int) error { return store(ctx, level[i]) }); err != nil {
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
		t, is := d.body.(*task)
		if !is {
			return 0
		}
		for _, needs := range t.Needs {
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
	slices.Reverse(all)
	return all
}
