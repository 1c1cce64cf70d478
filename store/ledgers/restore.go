package ledgers

import (
	"context"
	"fmt"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

var _ store.Restorer = (*Store)(nil)

// Restore implements store.Restorer. Home stores the record, its own tasks, and a letter for each other ledger in one
// transaction. The leader delivers letters that cannot be delivered now.
func (s *Store) Restore(ctx context.Context, note store.Record, tasks []store.Task) (int64, []store.ID, error) {
	all, err := s.ledgers(ctx)
	if err != nil {
		return 0, nil, fmt.Errorf("restore: %w", err)
	}
	w, err := s.writeBack(ctx, all, note, tasks)
	if err != nil {
		return 0, nil, fmt.Errorf("restore: %w", err)
	}
	for _, b := range w.mail {
		_ = s.sendBack(ctx, all, all[0], b)
	}
	return w.version, w.exist, nil
}

// written is the result of a restore at home.
type written struct {
	version int64
	exist   []store.ID
	mail    []back
}

// writeBack stores a restore at home.
//
// Tasks that wait for a restored one can be in any ledger. All ledgers are told about it, because it may be in another
// ledger than before. No task waits for a completed one.
func (s *Store) writeBack(
	ctx context.Context, all []*ledger, note store.Record, tasks []store.Task,
) (w written, err error) {
	ids := make([]store.ID, len(tasks))
	for i := range tasks {
		if ids[i] = tasks[i].ID; !tasks[i].State.Finished() {
			return w, fmt.Errorf("task %v is %v: only finished tasks can be restored", ids[i], tasks[i].State)
		}
	}
	found, err := s.whereAre(ctx, all, ids)
	if err != nil {
		return w, err
	}
	parts, heard := make([][]store.Task, len(all)), make([][]postgres.Elsewhere, len(all))
	named := make(map[store.ID]bool, len(tasks))
	for i := range tasks {
		t := &tasks[i]
		if _, is := found[t.ID]; is || named[t.ID] {
			w.exist = append(w.exist, t.ID)
			continue
		}
		named[t.ID] = true
		at := s.placeBack(t, len(all))
		parts[at] = append(parts[at], *t)
		for no := range all {
			if no != at && t.State != store.Completed {
				heard[no] = append(heard[no], postgres.Elsewhere{ID: t.ID, State: t.State})
			}
		}
	}
	p := store.PutRecord{Record: note}
	for no, part := range parts {
		if no == 0 || len(part) == 0 {
			continue
		}
		l := letter{Back: part, To: no}
		carrier, err := l.carrier()
		if err != nil {
			return w, err
		}
		p.Tasks, w.mail = append(p.Tasks, carrier), append(w.mail, back{carrier.ID, l})
	}
	if err := s.hearAll(ctx, all, heard); err != nil {
		return w, fmt.Errorf("%w: %w", store.ErrNotCommitted, err)
	}
	there, err := ask(ctx, all[0], func(ctx context.Context, e *postgres.Store) (there []store.ID, err error) {
		w.version, there, err = e.RestoreWith(ctx, p, parts[0])
		return there, err
	})
	w.exist = append(w.exist, there...)
	return w, err
}

// placeBack returns the ledger that a finished task is restored into.
func (s *Store) placeBack(t *store.Task, of int) int {
	n := store.NewTask{Tenant: t.Tenant, Key: t.Key, Workflow: t.Workflow, Queue: t.Queue}
	if at, fixed := s.fixed(&n, of); fixed {
		return at
	}
	return byID(t.ID, of)
}

// sendBack delivers a letter with finished tasks and deletes it.
func (s *Store) sendBack(ctx context.Context, all []*ledger, from *ledger, b back) error {
	if b.To >= len(all) {
		return fmt.Errorf("letter %v is for ledger %d: %w", b.id, b.To, errUnseen)
	}
	_, err := ask(ctx, all[b.To], func(ctx context.Context, e *postgres.Store) (struct{}, error) {
		return struct{}{}, e.Redeliver(ctx, b.id, b.Back)
	})
	if err != nil {
		return err
	}
	return throwAway(ctx, from, []store.ID{b.id})
}
