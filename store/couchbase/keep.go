package couchbase

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

type leader struct {
	head
	Holder  string `json:"h"` // empty if nobody leads
	Term    int64  `json:"t"` // the highest that was ever used
	Expires int64  `json:"x"`
	Renewed int64  `json:"r"`
}

var leaderRef = ref{inMeta, "leader"}

// Lead implements store.Keeper.
func (s *Store) Lead(ctx context.Context, c store.Candidate) (answer store.Leadership, err error) {
	defer says(&err, "lead")
	me := c.ID.String()
	err = s.alterAs(ctx, leaderRef, s.read, func(d *doc) bool { // the term goes on while a grant waits for a node
		l, now := d.body.(*leader), s.now(ctx)
		answer = store.Leadership{Now: instant(now)}
		switch {
		case l.Holder == me && c.TTL <= 0:
			l.Holder = ""
		case l.Holder == me:
		case c.TTL > 0 && (l.Holder == "" || now >= l.Expires):
			l.Holder = me
			l.Term++
		default:
			return false
		}
		if c.TTL > 0 {
			answer.Term = l.Term
		}
		l.Renewed, l.Expires = now, now+c.TTL.Microseconds()
		return true
	})
	if err != nil {
		answer = store.Leadership{}
	}
	return answer, err
}

func (s *Store) readLeader(ctx context.Context) (*leader, error) {
	d, err := s.read(ctx, leaderRef)
	if d == nil || err != nil {
		return &leader{}, err
	}
	return d.body.(*leader), nil
}

// leads reports whether the term is the current one at an instant.
func (l *leader) leads(term, now int64) bool {
	return l.Holder != "" && l.Term == term && now < l.Expires
}

// leads fails unless term is the current term. Chores call it before they write. Only for grants does one write cover
// both, so all other chores do no harm if a stale leader runs them.
func (s *Store) leads(ctx context.Context, term int64) error {
	l, err := s.readLeader(ctx)
	if err == nil && !l.leads(term, s.now(ctx)) {
		err = store.ErrNotLeader
	}
	return err
}

// Admit implements store.Keeper. If one of its queries fails, it does what the other finds.
func (s *Store) Admit(ctx context.Context, term int64, limit int) (_ store.Admitted, err error) {
	defer says(&err, "admit")
	did := store.Admitted{Next: -1}
	if err := s.leads(ctx, term); err != nil {
		return did, err
	}
	did.Cancelled, err = s.cancelDoomed(ctx, limit)
	err = errors.Join(err, s.admit(ctx, limit, &did))
	return did, err
}

// admit makes tasks available that are due.
func (s *Store) admit(ctx context.Context, limit int, did *store.Admitted) error {
	type due struct {
		ID  string `json:"id"`
		Due int64  `json:"due"`
	}
	waiting, err := query[due](ctx, s, queryDue, args{"n": limit + 1})
	if err != nil {
		return err
	}
	now := s.now(ctx)
	n := 0
	for n < len(waiting) && n < limit && waiting[n].Due <= now {
		n++
	}
	if n < len(waiting) {
		did.Next = max(time.Duration(waiting[n].Due-now)*time.Microsecond, 0)
	}
	admitted, err := s.doEach(ctx, n, func(i int, w *work) (bool, error) {
		did, err := w.batch.Admit([]store.ID{idOf(waiting[i].ID)})
		return len(did) > 0, err
	})
	if err != nil {
		return err
	}
	did.Count = len(admitted)
	for _, w := range admitted {
		if q := w.ready[0].Queue; !slices.Contains(did.Queues, q) {
			did.Queues = append(did.Queues, q)
		}
	}
	return nil
}

// cancelDoomed cancels pending tasks that need a failed task, which dooms the tasks that need them. If one doomed task
// needs another, they are cancelled in order, because the reason names the first need that has failed by then.
func (s *Store) cancelDoomed(ctx context.Context, limit int) (cancelled int, err error) {
	for cancelled < limit {
		ids, err := query[string](ctx, s, queryDoomed, args{"n": limit - cancelled})
		if err != nil || len(ids) == 0 {
			return cancelled, err
		}
		docs, err := readEach(ctx, inTask, ids, s.peek)
		if err != nil {
			return cancelled, err
		}
		docs = slices.DeleteFunc(docs, func(d *doc) bool {
			_, is := d.taskIn()
			return !is
		})
		slices.SortFunc(docs, func(a, b *doc) int { // the index has no order of those with the same time
			return cmp.Or(cmp.Compare(a.task().Doom, b.task().Doom), cmp.Compare(a.ID, b.ID))
		})
		did, err := s.doInRounds(ctx, roundsOf(docs), func(i int, w *work) (bool, error) {
			id := idOf(docs[i].ID)
			n, err := w.batch.Doom([]store.ID{id})
			if n > 0 || err != nil {
				return n > 0, err
			}
			d, err := w.load(taskRef(id))
			forNothing := d != nil && d.task().Doom != 0
			if forNothing {
				d.task().Doom, d.dirty = 0, true
			}
			return forNothing, err
		})
		for _, w := range did {
			if len(w.batch.Changes()) > 0 {
				cancelled++
			}
		}
		if len(did) == 0 || err != nil {
			return cancelled, err
		}
	}
	return cancelled, nil
}

// roundsOf puts tasks into rounds. Each is in a later round than the tasks before it that it needs or that need it.
func roundsOf(docs []*doc) (rounds [][]int) {
	at := map[string]int{}
	for i, d := range docs {
		if d != nil {
			at[d.ID] = i
		}
	}
	before := make([][]int, len(docs))
	for i, d := range docs {
		t, is := d.taskIn()
		if !is {
			continue
		}
		for _, n := range t.Needs {
			if j, among := at[n.Task.String()]; among && j != i {
				before[max(i, j)] = append(before[max(i, j)], min(i, j))
			}
		}
	}
	in := make([]int, len(docs))
	for i := range docs {
		for _, j := range before[i] {
			in[i] = max(in[i], in[j]+1)
		}
		if in[i] == len(rounds) {
			rounds = append(rounds, nil)
		}
		rounds[in[i]] = append(rounds[in[i]], i)
	}
	return rounds
}
