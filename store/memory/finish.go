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

// record writes an attempt into the task's history, the statistics and the error
// groups.
func (s *Store) record(t *task, e *rules.End) {
	past := t.detail.Attempts
	if n := len(past); n > 0 && past[n-1].Error == "" {
		past = past[:n-1] // neither failed nor the latest any more
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

// blame counts a failed attempt in its error group. The task is running, so it
// is among neither the waiting nor the dead of its former group.
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

// slice is what statistics are summed up by; queries add slices up.
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

// failure is what error groups are told apart by.
type failure struct{ queue, kind, fingerprint string }
