package couchbase

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// turn names a group of tasks that take turns.
type turn struct {
	Queue     string `json:"q"`
	Tenant    string `json:"tn"`
	Partition string `json:"pt"`
}

// turnCount is how many tasks of a group are in line or have a turn.
type turnCount struct {
	turn
	N     int64 `json:"n"`
	Since int64 `json:"since"`
}

type inLine struct {
	turn
	ID string `json:"id"`
}

func (a turn) compare(b turn) int {
	return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Partition, b.Partition))
}

// Turns implements store.Keeper.
func (s *Store) Turns(ctx context.Context, term int64, groups, heads int) (_ []store.Turns, err error) {
	defer says(&err, "turns")
	err = s.mayGoOn(ctx, term)
	if err == nil && term != 0 { // completes a grant that was left undone, so that the index counts it
		_, err = s.load(ctx, leaderRef)
	}
	if err != nil {
		return nil, err
	}
	granted, err := query[turnCount](ctx, s, queryGranted, nil)
	if err != nil {
		return nil, err
	}
	held := map[turn]int64{}
	for _, c := range granted {
		held[c.turn] = c.N
	}
	waiting, err := query[turnCount](ctx, s, queryInLine, nil)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(waiting, func(a, b turnCount) int { return cmp.Or(cmp.Compare(a.Since, b.Since), a.compare(b.turn)) })
	all := int64(0)
	for _, w := range waiting {
		all += w.N
	}
	waiting = waiting[:min(len(waiting), groups)]
	answer := make([]store.Turns, len(waiting))
	first, err := s.heads(ctx, waiting, all, heads)
	for i, w := range waiting {
		answer[i] = store.Turns{Queue: w.Queue, Tenant: w.Tenant, Partition: w.Partition, Held: held[w.turn],
			Waiting: first[i]}
		delete(held, w.turn)
	}
	for _, of := range slices.SortedFunc(maps.Keys(held), turn.compare) {
		answer = append(answer, store.Turns{Queue: of.Queue, Tenant: of.Tenant, Partition: of.Partition, Held: held[of]})
	}
	return answer, err
}

// fewInLine is the number of tasks in line up to which one query reads all of them.
const fewInLine = 1000

// heads returns the first tasks of each group: by one query if few tasks are in line in all, and otherwise by a query
// for each group.
func (s *Store) heads(ctx context.Context, groups []turnCount, all int64, heads int) ([][]store.ID, error) {
	if all > fewInLine {
		return collect(len(groups), func(i int) (first []store.ID, err error) {
			of := groups[i].turn
			ids, err := query[string](ctx, s, queryHeads, args{"q": of.Queue, "tn": of.Tenant, "pt": of.Partition, "n": heads})
			for _, id := range ids {
				first = append(first, idOf(id))
			}
			return first, err
		})
	}
	first, at := make([][]store.ID, len(groups)), map[turn]int{}
	for i, g := range groups {
		at[g.turn] = i
	}
	rows, err := query[inLine](ctx, s, queryLine, args{"n": 2 * fewInLine})
	for _, r := range rows {
		if i, among := at[r.turn]; among && len(first[i]) < heads {
			first[i] = append(first[i], idOf(r.ID))
		}
	}
	return first, err
}

// Grant implements store.Keeper. The leader's document is the root of the unit, so nothing is granted after the term
// has ended.
func (s *Store) Grant(ctx context.Context, term int64, ids []store.ID) (granted int, err error) {
	defer says(&err, "grant")
	w := &work{}
	err = s.do(ctx, w, func(b *rules.Batch) error {
		d, err := w.load(leaderRef)
		if err != nil {
			return err
		}
		if d == nil || !d.body.(*leader).leads(term, s.now(ctx)) {
			return store.ErrNotLeader
		}
		w.root, d.dirty = d, true
		granted, err = b.Grant(ids)
		return err
	})
	switch {
	case err == nil:
		err = s.finishUp(ctx, w)
	case errors.Is(err, errTooLarge) && len(ids) > 1:
		first, err := s.Grant(ctx, term, ids[:len(ids)/2])
		if err != nil {
			return first, err
		}
		second, err := s.Grant(ctx, term, ids[len(ids)/2:])
		return first + second, err
	default:
		granted = 0
	}
	return granted, err
}
