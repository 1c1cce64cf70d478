package memory

import (
	"container/heap"
	"context"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// leader is the holder of the term, and until when it lasts.
type leader struct {
	holder  store.ID // zero if there is no leader
	term    int64    // the highest so far
	expires time.Time
}

// forgetAfter is how long a dead worker is remembered, so that a worker that was only suspended is still told when it
// wakes up.
const forgetAfter = 24 * time.Hour

// Lead implements store.Keeper.
func (s *Store) Lead(ctx context.Context, c store.Candidate) (store.Leadership, error) {
	if err := ctx.Err(); err != nil {
		return store.Leadership{}, fmt.Errorf("lead: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := clock()
	mine := s.leader.holder == c.ID
	switch {
	case c.TTL <= 0:
		if mine {
			s.leader.holder = store.ID{}
		}
		return store.Leadership{Now: now}, nil
	case mine:
	case s.leader.holder.IsZero() || !now.Before(s.leader.expires):
		s.leader.holder = c.ID
		s.leader.term++
	default:
		return store.Leadership{Now: now}, nil
	}
	s.leader.expires = now.Add(c.TTL)
	return store.Leadership{Term: s.leader.term, Now: now}, nil
}

// leads fails unless the term is the current one and has not expired.
func (s *Store) leads(term int64, now time.Time) error {
	l := s.leader
	if l.holder.IsZero() || l.term != term || !now.Before(l.expires) {
		return store.ErrNotLeader
	}
	return nil
}

// Admit implements store.Keeper.
func (s *Store) Admit(ctx context.Context, term int64, limit int) (store.Admitted, error) {
	done := store.Admitted{Next: -1}
	if err := ctx.Err(); err != nil {
		return done, fmt.Errorf("admit: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := clock()
	if err := s.leads(term, now); err != nil {
		return done, fmt.Errorf("admit: %w", err)
	}
	done.Cancelled = s.cancelDoomed(limit, now)
	b := s.batch(now)
	seen := map[string]bool{}
	for t := s.soonest(); t != nil; t = s.soonest() {
		if t.RunAt.After(now) || done.Count == limit {
			done.Next = max(t.RunAt.Sub(now), 0)
			break
		}
		heap.Pop(&s.waiting)
		if admitted, _ := b.Admit([]store.ID{t.ID}); len(admitted) == 0 {
			continue
		}
		done.Count++
		if !seen[t.Queue] {
			seen[t.Queue] = true
			done.Queues = append(done.Queues, t.Queue)
		}
	}
	s.apply(b)
	return done, nil
}

// soonest returns the waiting task that is due first, or nil if none waits.
func (s *Store) soonest() *task {
	for len(s.waiting) > 0 && s.waiting[0].gone() {
		heap.Pop(&s.waiting)
	}
	if len(s.waiting) == 0 {
		return nil
	}
	return s.waiting[0].task
}

// Rescue implements store.Keeper.
func (s *Store) Rescue(ctx context.Context, term int64, limit int) ([]store.Task, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("rescue: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := clock()
	if err := s.leads(term, now); err != nil {
		return nil, fmt.Errorf("rescue: %w", err)
	}
	var orphans, strays []*task
	for _, w := range s.workers {
		if !now.Before(w.ExpiresAt) {
			w.dead = true
		}
		if !w.dead {
			strays = append(strays, w.strays()...)
			continue
		}
		for _, t := range w.holds {
			orphans = append(orphans, t)
		}
	}
	rescued := answers(orphans)
	for _, t := range answers(strays) {
		t.Stray = true
		rescued = append(rescued, t)
	}
	return rescued[:min(len(rescued), limit)], nil
}

// Prune implements store.Keeper.
func (s *Store) Prune(ctx context.Context, term int64, keep store.Retention, limit int) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("prune: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := clock()
	if err := s.leads(term, now); err != nil {
		return 0, fmt.Errorf("prune: %w", err)
	}
	s.pruneStats(keep.Stats, now)
	s.pruneWorkers(now)
	deleted := 0
	for of := range s.finished {
		kept := keep.Of(of.queue, of.state)
		if kept <= 0 {
			continue
		}
		deleted += s.pruneOld(of, now.Add(-kept), now, limit-deleted)
	}
	return deleted, nil
}

// pruneOld deletes up to limit tasks that ended at or before until.
func (s *Store) pruneOld(of verdict, until, now time.Time, limit int) (deleted int) {
	var old []store.ID
	list := s.finished[of]
	for len(list) > 0 && (list[0].gone() || !list[0].FinishedAt.After(until)) {
		if !list[0].gone() {
			if deleted == limit {
				break
			}
			old = append(old, list[0].ID)
			deleted++
		}
		list[0] = placed{}
		list = list[1:]
	}
	if s.finished[of] = list; len(list) == 0 {
		delete(s.finished, of)
	}
	b := s.batch(now)
	_ = b.Delete(old)
	s.apply(b)
	return deleted
}

func (s *Store) pruneStats(keep time.Duration, now time.Time) {
	if keep <= 0 {
		return
	}
	for at, g := range s.failures {
		if g.Waiting <= 0 && g.Dead <= 0 && !g.Last.After(now.Add(-keep)) {
			delete(s.failures, at)
		}
	}
	for at := range s.stats {
		if !at.at.Add(time.Minute).After(now.Add(-keep)) {
			delete(s.stats, at)
		}
	}
}

func (s *Store) pruneWorkers(now time.Time) {
	for id, w := range s.workers {
		if w.dead && len(w.holds) == 0 && now.Sub(w.BeatAt) > forgetAfter {
			delete(s.workers, id)
		}
	}
}
