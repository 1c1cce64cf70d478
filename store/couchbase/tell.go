package couchbase

import (
	"context"
	"slices"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// tell tells the children of tasks that have ended, each once, and then takes note of that.
func (s *Store) tell(ctx context.Context, told []*doc) error {
	type end struct {
		id    store.ID
		state store.State
	}
	needy := make([][]string, len(told))
	err := each(len(told), func(i int) (err error) {
		if d := told[i]; d.header().Tell != "" && d.task().Back {
			needy[i], err = query[string](ctx, s, queryNeedy, args{"id": d.ID}, requestPlus)
		}
		return err
	})
	if err != nil {
		return err
	}
	ended := map[string][]end{}
	var kids []string
	for i, d := range told {
		if d.header().Tell == "" {
			continue
		}
		for _, kid := range slices.Concat(d.task().Kids, needy[i]) {
			one := end{idOf(d.ID), states[d.header().Tell]}
			if ended[kid] == nil {
				kids = append(kids, kid)
			}
			if !slices.Contains(ended[kid], one) { // it may be known both ways
				ended[kid] = append(ended[kid], one)
			}
		}
	}
	freed := make([][]*task, len(kids))
	err = each(len(kids), func(i int) error {
		kid := ref{inTask, kids[i]}
		d, err := s.read(ctx, kid)
		// One that has ended or gone is not told. Tasks may need each other: to load one that has ended and has not told
		// its children yet would have it tell the other, which would be loaded again, and so on without end.
		if d == nil || err != nil || d.header().Gone || d.task().state().Finished() {
			return err
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
				if n.Open {
					w.edges = append(w.edges, rules.Edge{Child: idOf(d.ID), Need: n.Need})
				}
			}
			for _, e := range ended[kids[i]] {
				if err := b.Tell(e.id, e.state); err != nil {
					return err
				}
			}
			return nil
		})
		freed[i] = w.ready
		return err
	})
	if err == nil {
		err = s.queueUp(ctx, slices.Concat(freed...)...)
	}
	if err != nil {
		return err
	}
	return each(len(told), func(i int) error { return s.wasTold(ctx, told[i]) })
}

// wasTold takes note that the children of a task were told. One that was deleted goes now.
func (s *Store) wasTold(ctx context.Context, d *doc) error {
	h := d.header()
	if h.Gone {
		_, err := s.remove(ctx, d)
		return err
	}
	h.Tell = ""
	d.rest()
	_, err := s.replace(ctx, d, s.durability)
	return err
}

// finishUp does what follows once the documents of some works are written: tasks that may run are lined up in order,
// and children are told.
func (s *Store) finishUp(ctx context.Context, works ...*work) error {
	var ready []*task
	var told []*doc
	for _, w := range works {
		ready, told = append(ready, w.ready...), append(told, w.told...)
	}
	if err := s.queueUp(ctx, ready...); err != nil {
		return err
	}
	if err := s.tell(ctx, told); err != nil {
		return err
	}
	for _, w := range works {
		for _, t := range w.stops {
			if err := s.stop(ctx, t); err != nil {
				return err
			}
		}
	}
	return nil
}
