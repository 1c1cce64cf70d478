package memory

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// worker is a process that runs tasks, or one that ran some.
type worker struct {
	store.Worker
	dead  bool // declared dead or signed off; it never comes back
	left  bool // signed off
	holds map[store.ID]*task

	seq int64 // of its last beat
	// since bounds what can be stray: the worker does not know about a lease that it claimed before since, unless
	// the lease is in names. Zero means that the worker did not say what it holds.
	since time.Time
	names map[store.Token]bool
}

// Claim implements store.Leaser.
func (s *Store) Claim(ctx context.Context, r store.ClaimRequest) ([]store.Task, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.workers[r.Worker]
	if w == nil || w.dead {
		return nil, fmt.Errorf("claim: %w", store.ErrWorkerDead)
	}
	if r.Again {
		return w.held(r.Token), nil
	}
	now := clock()
	var claimed []store.Task
	for _, queue := range r.Queues {
		q := s.queues[queue]
		if q == nil {
			continue
		}
		for len(claimed) < r.Limit {
			t := q.next()
			if t == nil {
				break
			}
			s.lease(t, w, r.Token, now)
			claimed = append(claimed, t.answer(false))
		}
	}
	return claimed, nil
}

// lease gives a worker a lease on a task.
func (s *Store) lease(t *task, w *worker, token store.Token, now time.Time) {
	s.take(t)
	t.Attempt++
	t.ClaimedAt = now
	t.Lease, t.Worker = token, w.ID
	s.put(t, store.Running)
	w.holds[t.ID] = t
}

// held returns the tasks that the worker still holds under a token, in the order in which they were claimed.
func (w *worker) held(token store.Token) []store.Task {
	var held []*task
	for _, t := range w.holds {
		if t.Lease == token {
			held = append(held, t)
		}
	}
	return answers(held)
}

// answers copies tasks, sorted by when they entered their state.
func answers(tasks []*task) []store.Task {
	slices.SortFunc(tasks, func(a, b *task) int { return cmp.Compare(a.place, b.place) })
	copies := make([]store.Task, len(tasks))
	for i, t := range tasks {
		copies[i] = t.answer(false)
	}
	return copies
}

// Extend implements store.Leaser.
func (s *Store) Extend(ctx context.Context, b store.Beat) ([]store.Stop, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("extend: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.workers[b.Worker.ID]
	is, last := rules.Unheard, int64(0)
	switch {
	case w == nil:
	case w.left:
		is = rules.SignedOff
	case w.dead:
		is = rules.Dead
	default:
		is, last = rules.Living, w.seq
	}
	if counts, err := rules.Beat(&b, is, last); err != nil {
		return nil, fmt.Errorf("extend: %w", err)
	} else if !counts {
		return nil, nil
	}
	for _, note := range b.Notes {
		if t := s.leased(note.ID, note.Lease); t != nil {
			t.write(&note)
		}
	}
	if b.TTL <= 0 {
		w.dead, w.left = true, true
		return nil, nil
	}
	w = s.register(b)
	var stops []store.Stop
	for _, t := range w.holds {
		if t.Stopping {
			stops = append(stops, store.Stop{ID: t.ID, Lease: t.Lease})
		}
	}
	return stops, nil
}

// register stores a worker's beat, including its first one.
func (s *Store) register(b store.Beat) *worker {
	now := clock()
	w := s.workers[b.Worker.ID]
	if w == nil {
		w = &worker{holds: map[store.ID]*task{}}
		w.StartedAt = now
		s.workers[b.Worker.ID] = w
	}
	w.compare(b)
	started := w.StartedAt
	w.Worker = b.Worker
	w.Queues, w.Kinds = slices.Clone(b.Worker.Queues), slices.Clone(b.Worker.Kinds)
	w.StartedAt, w.BeatAt, w.ExpiresAt = started, now, now.Add(b.TTL)
	return w
}

// compare stores what the worker says it holds. Claims after the last beat whose answer the worker has seen are not
// compared.
func (w *worker) compare(b store.Beat) {
	switch {
	case b.Seq == 0:
		w.since = time.Time{}
	case b.Seen > 0 && b.Seen == w.seq:
		w.since = w.BeatAt
	}
	w.seq, w.names = b.Seq, make(map[store.Token]bool, len(b.Holds))
	for _, token := range b.Holds {
		w.names[token] = true
	}
}

// strays returns the tasks that a live worker holds but does not know about.
func (w *worker) strays() (strays []*task) {
	for _, t := range w.holds {
		if t.ClaimedAt.Before(w.since) && !w.names[t.Lease] {
			strays = append(strays, t)
		}
	}
	return strays
}

// leased returns a task if the token is that of its open lease, and nil otherwise.
func (s *Store) leased(id store.ID, lease store.Token) *task {
	t := s.tasks[id]
	if t == nil || t.State != store.Running || t.Lease != lease {
		return nil
	}
	return t
}

// write stores a note.
func (t *task) write(n *store.Note) {
	if n.Progress != nil {
		progress := *n.Progress
		t.detail.Progress = &progress
	}
	if n.Output != nil {
		t.detail.Output = bytes.Clone(n.Output)
	}
	t.detail.Logs = append(t.detail.Logs, n.Logs...)
}
