package couchbase

import (
	"context"
	"slices"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// tell tells the children of ended tasks, each child once, and then records that.
func (s *Store) tell(ctx context.Context, told []*doc) error {
	needy := make([][]string, len(told))
	err := each(len(told), func(i int) (err error) {
		if d := told[i]; d.header().Tell != "" && d.task().Back {
			needy[i], err = query[string](ctx, s, queryNeedy, args{"id": d.ID})
		}
		return err
	})
	if err != nil {
		return err
	}
	ended := map[string]map[store.ID]store.State{} // by kid
	var kids []string
	for i, d := range told {
		if d.header().Tell == "" {
			continue
		}
		for _, kid := range slices.Concat(d.task().Kids, needy[i]) {
			if ended[kid] == nil {
				kids = append(kids, kid)
				ended[kid] = map[store.ID]store.State{}
			}
			ended[kid][idOf(d.ID)] = states[d.header().Tell]
		}
	}
	err = s.hear(ctx, kids, func(kid string, parent store.ID) (store.State, bool, error) {
		state, is := ended[kid][parent]
		return state, is, nil
	})
	if err != nil {
		return err
	}
	return each(len(told), func(i int) error { // a deleted task is removed now
		told[i].header().Tell = ""
		_, err := s.putBack(ctx, told[i])
		return err
	})
}

// hear tells tasks which of their needs have ended or do not exist, and lines up the tasks that may run now.
func (s *Store) hear(
	ctx context.Context, kids []string, ends func(kid string, parent store.ID) (store.State, bool, error),
) error {
	freed := make([][]*task, len(kids))
	err := each(len(kids), func(i int) error {
		kid := ref{inTask, kids[i]}
		d, err := s.read(ctx, kid)
		// A child that has ended or is gone is not told. Tasks may need each other: loading one that has ended and has
		// not told its children yet would make it tell the other, which would load the first again, and so on without
		// end.
		if d == nil || err != nil || d.header().Gone || d.task().state().Finished() {
			return err
		}
		w := &work{}
		if h := d.header(); h.Pin == nil && !h.open() {
			w.have = map[ref]*doc{kid: d}
		}
		err = s.do(ctx, w, func(*rules.Batch) error { return w.tell(kid, ends) })
		freed[i] = w.ready
		return err
	})
	if err == nil {
		err = s.queueUp(ctx, slices.Concat(freed...)...)
	}
	return err
}

func (w *work) tell(kid ref, ends func(kid string, parent store.ID) (store.State, bool, error)) error {
	w.edges = nil
	d, err := w.load(kid)
	if d == nil || err != nil {
		return err
	}
	var how []store.State
	for _, n := range d.task().openNeeds() {
		if !n.Open {
			continue
		}
		state, ended, err := ends(kid.ID, n.Task)
		if err != nil {
			return err
		}
		if ended {
			w.edges, how = append(w.edges, rules.Edge{Child: idOf(kid.ID), Need: n.Need}), append(how, state)
		}
	}
	for i, e := range w.edges {
		if err := w.batch.Tell(e.Task, how[i]); err != nil {
			return err
		}
	}
	return nil
}

// finishUp does what follows after the documents of some works are written: it lines up tasks that may run, in order,
// and tells children.
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
