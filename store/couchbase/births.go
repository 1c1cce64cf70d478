package couchbase

import (
	"context"
	"errors"
	"slices"

	"github.com/tuskqueue/tusk/store"
)

// A call that stores a workflow stores each task before the tasks that it needs. If the process dies in between, the
// stored tasks wait for tasks that never come. So the call first writes a document among the keys that lists the tasks
// that will wait, and removes it once all tasks are stored. If the call dies, the sweep finds the document and tells
// those of its tasks that exist that the tasks they need are missing.

var errAdopted = errors.New("storing a workflow took so long that it was given up")

// insertAll stores new tasks.
func (s *Store) insertAll(ctx context.Context, made []*doc) error {
	rounds := roundsOf(made)
	if len(rounds) < 2 {
		return childrenFirst(ctx, made, rounds, s.insert)
	}
	births := &key{head: head{Todo: s.now(ctx)}}
	for _, i := range slices.Concat(rounds[1:]...) {
		births.Births = append(births.Births, made[i].ID)
	}
	d := &doc{ref: ref{inKey, "births|" + nonce()}, body: births} // no key has such a name; see named
	if err := s.insert(ctx, d); err != nil {
		return err
	}
	if err := childrenFirst(ctx, made, rounds, s.insert); err != nil {
		return err
	}
	gone, err := s.remove(ctx, d)
	if err == nil && !gone {
		err = errAdopted
	}
	return err
}

// childrenFirst stores new tasks. It stores a task before the tasks that it needs, so that nothing ends before its
// children are known.
func childrenFirst(
	ctx context.Context, made []*doc, rounds [][]int, store func(context.Context, *doc) error,
) error {
	for _, round := range slices.Backward(rounds) {
		if err := each(len(round), func(i int) error { return store(ctx, made[round[i]]) }); err != nil {
			return err
		}
	}
	return nil
}

// adopt takes care of the tasks of a call that has died. It first writes the document of births, so that the call fails
// if it is still alive.
func (s *Store) adopt(ctx context.Context, births *doc) error {
	if ok, err := s.write(ctx, births); !ok || err != nil {
		return err
	}
	err := s.hear(ctx, births.key().Births, func(_ string, parent store.ID) (store.State, bool, error) {
		is, err := s.locate(ctx, taskRef(parent))
		return 0, is == nil, err
	})
	if err == nil {
		_, err = s.remove(ctx, births)
	}
	return err
}
