package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// Finish implements store.Leaser.
func (s *Store) Finish(ctx context.Context, outcomes []store.Outcome) (lost []store.ID, err error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("finish: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.batch(clock())
	all := make([]*store.Outcome, len(outcomes))
	for i := range outcomes {
		all[i] = &outcomes[i]
	}
	lost, _ = b.Finish(all)
	s.apply(b)
	return lost, nil
}

// record adds an attempt to the task's history, the statistics and the error groups.
func (s *Store) record(t *task, e *rules.End) {
	past := t.detail.Attempts
	if n := len(past); n > 0 && past[n-1].Error == "" {
		past = past[:n-1] // it did not fail, and is no longer the latest
	}
	t.detail.Attempts = append(past, e.Attempt)
	rules.Count(s.stat(t, e.Attempt.EndedAt), e.Outcome, e.Attempt.Outcome, e.Waited)
	if e.Outcome.Error != "" {
		s.blame(t, e)
		if rules.Died(e.Outcome) {
			s.ends.add(store.End{Task: t.ID, Queue: t.Queue, State: e.Attempt.Outcome, At: e.Attempt.EndedAt, Rescued: true})
		}
	}
	if e.Outcome.Note != nil {
		t.write(e.Outcome.Note)
	}
}

// blame counts a failed attempt in its error group. The task is still running, so its former group counts it as
// neither waiting nor dead.
func (s *Store) blame(t *task, e *rules.End) {
	at := failure{t.Queue, t.Kind, e.Outcome.Fingerprint}
	g := s.failures[at]
	if g == nil {
		g = &store.ErrorGroup{Fingerprint: at.fingerprint, Queue: t.Queue, Kind: t.Kind}
		s.failures[at] = g
	}
	rules.Blame(g, e)
	t.group = g
}

// slice identifies one sum of statistics. Queries add slices up.
type slice struct {
	at          time.Time // a full minute
	queue, kind string
}

func (s *Store) stat(t *task, ended time.Time) *store.Stat {
	at := slice{ended.Truncate(time.Minute), t.Queue, t.Kind}
	stat := s.stats[at]
	if stat == nil {
		stat = &store.Stat{At: at.at, Queue: at.queue, Kind: at.kind}
		s.stats[at] = stat
	}
	return stat
}

// failure identifies an error group.
type failure struct{ queue, kind, fingerprint string }
