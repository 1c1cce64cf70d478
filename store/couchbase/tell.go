package couchbase

import (
	"context"
	"slices"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// tell tells the children of ended or deleted tasks, each child once, and then records that in the tasks' documents.
func (s *Store) tell(ctx context.Context, told []*doc) error {
	needy, err := collect(len(told), func(i int) ([]string, error) {
		if !told[i].task().Back {
			return nil, nil
		}
		return query[string](ctx, s, queryNeedy, args{"id": told[i].ID})
	})
	if err != nil {
		return err
	}
	ended := map[string]map[store.ID]store.State{} // by kid
	var kids []string
	for i, d := range told {
		for _, kid := range slices.Concat(d.task().Kids, needy[i]) {
			if ended[kid] == nil {
				kids = append(kids, kid)
				ended[kid] = map[store.ID]store.State{}
			}
			ended[kid][idOf(d.ID)] = states[d.header().Tell]
		}
	}
	freed, err := collect(len(kids), func(i int) ([]*task, error) {
		return s.hear(ctx, ref{inTask, kids[i]}, ended[kids[i]])
	})
	if err == nil {
		err = s.queueUp(ctx, slices.Concat(freed...)...)
	}
	if err != nil {
		return err
	}
	return each(len(told), func(i int) error { // this removes deleted tasks
		told[i].header().Tell = ""
		_, err := s.putBack(ctx, told[i])
		return err
	})
}

// hear tells a task which of its needs have ended, and returns it if it is now available.
func (s *Store) hear(ctx context.Context, kid ref, ended map[store.ID]store.State) ([]*task, error) {
	d, err := s.read(ctx, kid)
	// A child that has ended need not be told, and must not be loaded: if two tasks that need each other have ended and
	// have not told their children, loading one would load the other, and so on without end.
	if d == nil || err != nil || d.header().Gone || d.task().state().Finished() {
		return nil, err
	}
	w := &work{}
	if h := d.header(); h.Pin == nil && !h.open() {
		w.have = map[ref]*doc{kid: d}
	}
	err = s.do(ctx, w, func(b *rules.Batch) error {
		w.edges = nil
		d, err := w.load(kid)
		if d == nil || err != nil {
			return err
		}
		for _, n := range d.task().openNeeds() {
			if _, is := ended[n.Task]; is && n.Open {
				w.edges = append(w.edges, rules.Edge{Child: idOf(kid.ID), Need: n.Need})
			}
		}
		for _, e := range w.edges {
			if err := b.Tell(e.Task, ended[e.Task]); err != nil {
				return err
			}
		}
		return nil
	})
	return w.ready, err
}

// finishUp does what follows once the documents of some works are written: it appends available tasks to their lanes,
// in order, and tells children.
func (s *Store) finishUp(ctx context.Context, works ...*work) error {
	var ready []*task
	var told []*doc
	for _, w := range works {
		ready, told = append(ready, w.ready...), append(told, w.told...)
	}
	if err := s.queueUp(ctx, ready...); err != nil {
		return err
	}
	return s.tell(ctx, told)
}
