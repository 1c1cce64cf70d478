package couchbase

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Rescue implements store.Keeper. A worker that cannot be read does not affect others. If the index fails for one
// worker, it is not queried for others.
func (s *Store) Rescue(ctx context.Context, term int64, limit int) (_ []store.Task, err error) {
	defer says(&err, "rescue")
	if err := s.leads(ctx, term); err != nil {
		return nil, err
	}
	ids, err := s.listed(ctx, s.meta, workerList)
	if err != nil {
		return nil, err
	}
	workers, back, errs := make([]*worker, len(ids)), make([][]*task, len(ids)), make([]error, len(ids))
	_ = each(len(ids), func(i int) error {
		workers[i], back[i], errs[i] = s.backFrom(ctx, ids[i])
		return nil
	})
	s.calm.Range(func(id, _ any) bool {
		if !slices.Contains(ids, id.(string)) {
			s.calm.Delete(id)
		}
		return true
	})
	var dead, strays []*task
	var unasked error // the error of the index
	found := slices.ContainsFunc(back, func(some []*task) bool { return len(some) > 0 })
	for i, w := range workers {
		if errs[i] == nil && (w == nil || w.Combed) { // one by one, because all change the same document
			errs[i] = s.forget(ctx, workerRef(ids[i]), workerList, ids[i])
		}
		if !found && errs[i] == nil && w.unknown() && unasked == nil {
			back[i], unasked = s.comb(ctx, ids[i], w)
		}
		if w != nil && w.G != nil {
			strays = append(strays, back[i]...)
		} else {
			dead = append(dead, back[i]...)
		}
	}
	if len(dead)+len(strays) == 0 {
		return nil, errors.Join(append(errs, unasked)...)
	}
	tasks := append(inOrderOfClaim(dead), inOrderOfClaim(strays)...)
	for i := len(dead); i < len(tasks); i++ {
		tasks[i].Stray = true
	}
	return tasks[:min(len(tasks), limit)], nil
}

// backFrom declares a worker dead if its beat is overdue or its document is damaged. It returns the worker, or nil if
// it does not exist, and the tasks to take back that its document names: all of them if the worker is dead, and
// otherwise the strays.
func (s *Store) backFrom(ctx context.Context, id string) (w *worker, back []*task, err error) {
	var d *doc
	err = s.alter(ctx, workerRef(id), func(is *doc) bool {
		if w = nil; is.cas == 0 {
			return false
		}
		d, w = is, is.worker()
		dies := w.damaged || w.G != nil && s.now(ctx) >= w.Expires
		if dies {
			w.G = nil
		}
		return dies
	})
	switch {
	case err != nil:
	case w == nil || w.Combed:
	case w.G != nil:
		back, err = s.straysOf(ctx, id, w)
	default:
		back, err = s.leftBy(ctx, id, d)
	}
	return w, back, err
}

// unknown reports whether a worker may hold tasks that its document does not name.
func (w *worker) unknown() bool {
	return w != nil && (w.G == nil && !w.Combed || w.G != nil && w.Doubt != 0 && w.Since != 0)
}

func inOrderOfClaim(tasks []*task) []store.Task {
	slices.SortFunc(tasks, func(a, b *task) int {
		return cmp.Or(cmp.Compare(a.Since, b.Since), cmp.Compare(a.ID, b.ID))
	})
	var answers []store.Task
	for _, t := range tasks {
		answers = append(answers, t.lentOut())
	}
	return answers
}

// heldIn reads tasks and returns those that a worker holds.
func (s *Store) heldIn(ctx context.Context, worker string, ids []string) (docs []*doc, held []*task, err error) {
	docs, err = s.spread(ctx, ids, s.peek)
	for _, d := range docs {
		if t, is := d.taskIn(); is && t.State == "r" && len(t.Run) == 1 && t.Run[0].Worker == worker {
			held = append(held, t)
		}
	}
	return docs, held, err
}

// straysOf returns the tasks that a live worker holds and does not know of. They were claimed before the last beat
// whose answer the worker has seen, so straysOf need not look again until the next beat.
func (s *Store) straysOf(ctx context.Context, id string, w *worker) ([]*task, error) {
	if seq, seen := s.calm.Load(id); w.Since == 0 || seen && seq == w.Seq {
		return nil, nil
	}
	unnamed := slices.DeleteFunc(slices.Collect(maps.Keys(w.Leases)), w.names)
	_, held, err := s.heldIn(ctx, id, w.meant(unnamed...))
	held = slices.DeleteFunc(held, w.knows)
	if len(held) == 0 && err == nil {
		s.calm.Store(id, w.Seq)
	}
	return held, err
}

func (w *worker) names(token string) bool { return slices.Contains(w.Names, token) }

// knows reports whether a task that the worker holds is not a stray.
func (w *worker) knows(t *task) bool { return t.Claimed >= w.Since || w.names(t.Run[0].Token) }

// leftBy returns the tasks that a dead worker holds, as far as its intents name them. Once there are none, leftBy
// appends to their lanes the tasks that were not leased, and deletes the intents.
func (s *Store) leftBy(ctx context.Context, id string, dead *doc) ([]*task, error) {
	w := dead.worker()
	docs, held, err := s.heldIn(ctx, id, w.meant(slices.Collect(maps.Keys(w.Leases))...))
	if len(w.Leases) == 0 || len(held) > 0 || err != nil {
		return held, err
	}
	passed, refused, err := s.refuseLeases(ctx, docs)
	if !refused || err != nil { // the next round looks again
		return nil, err
	}
	if err := s.queueUp(ctx, passed...); err != nil {
		return nil, err
	}
	clear(w.Leases)
	_, err = s.write(ctx, dead) // if it has changed, the next round looks again
	return nil, err
}

// refuseLeases writes documents unchanged that are available, and returns their tasks. A lease of an intent that will
// be removed is then refused if it arrives late: nobody would look for it. refuseLeases reports false if a document has
// changed, perhaps by the lease.
func (s *Store) refuseLeases(ctx context.Context, docs []*doc) (available []*task, refused bool, err error) {
	docs = slices.DeleteFunc(slices.Clone(docs), func(d *doc) bool { return d.ready() == nil })
	unchanged, err := collect(len(docs), func(i int) (bool, error) { return s.write(ctx, docs[i]) })
	if err != nil || slices.Contains(unchanged, false) {
		return nil, false, err
	}
	for _, d := range docs {
		available = append(available, d.ready())
	}
	return available, true, nil
}

// askWithin limits a query for what a worker holds.
const askWithin = 5 * time.Second

// heldBy queries the index for the documents with tasks that a worker holds.
func (s *Store) heldBy(ctx context.Context, worker string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	return query[string](ctx, s, queryHeld, args{"w": worker, "n": store.MaxPage})
}

// comb queries the index for the tasks that a worker holds: a dead one, until there are none, or a live one whose claim
// was in doubt. Intents are written without durability, so a failover may have lost an intent and kept its lease.
func (s *Store) comb(ctx context.Context, id string, w *worker) ([]*task, error) {
	ids, err := s.heldBy(ctx, id)
	if err != nil {
		return nil, err
	}
	_, held, err := s.heldIn(ctx, id, ids)
	switch {
	case err != nil:
		return nil, err
	case w.G != nil:
		return s.combLiving(ctx, id, w, held, len(ids) < store.MaxPage)
	case len(held) > 0:
		return held, nil // there may be more
	}
	return nil, s.alter(ctx, workerRef(id), func(d *doc) bool {
		w := d.worker() // a failover may have revived it, and leftBy may have to look again
		w.Combed = d.cas != 0 && w.G == nil && len(w.Leases) == 0
		return w.Combed
	})
}

// combLiving returns the strays among the tasks that a live worker holds; all says whether held has all of its tasks.
// The doubt about its claims ends once it has seen the answer to a later beat, and its intents name all that it holds.
func (s *Store) combLiving(ctx context.Context, id string, w *worker, held []*task, all bool) ([]*task, error) {
	for _, t := range held {
		sheet, _ := block(t.ID)
		meant := w.Leases[t.Run[0].Token]
		all = all && (slices.Contains(meant, t.ID) || slices.Contains(meant, sheet.ID))
	}
	held = slices.DeleteFunc(held, w.knows)
	if len(held) > 0 || !all || w.Doubt >= w.Since {
		return held, nil
	}
	return nil, s.alter(ctx, workerRef(id), func(d *doc) bool {
		if d.cas == 0 || d.worker().Doubt != w.Doubt { // another claim has come into doubt
			return false
		}
		d.worker().Doubt = 0
		return true
	})
}
