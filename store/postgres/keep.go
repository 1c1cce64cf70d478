package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/store"
)

const (
	rescueAll = 5 * time.Second // between two checks of all leases for dead workers, if none is known to have died
	// Subtracted if leases are read anyway, so that the ledgers of a server become due together.
	rescueSlack = time.Second
)

// pruneLooks is how many flushes, and how many dead tasks, one call of Prune reads. Any number that a queue keeps for
// longer may precede those that are due, so the next call continues after them.
const pruneLooks = 100_000

// forgetAfter is how long a dead worker is remembered, so that one that was
// only suspended is still told when it wakes up.
const forgetAfter = 24 * time.Hour

// Lead implements store.Keeper.
func (s *Store) Lead(ctx context.Context, c store.Candidate) (l store.Leadership, err error) {
	into := func(raw [][]byte) error {
		l = store.Leadership{Term: int64Of(raw[0]), Now: timeOf(raw[1])}
		return nil
	}
	id, ttl := [16]byte(c.ID), c.TTL.Microseconds()
	if ttl > 0 {
		err = s.stay(ctx)
	}
	if err != nil {
		return l, fmt.Errorf("lead: %w", err)
	}
	if err = s.query(ctx, "lead", into, id, ttl); err == nil && l.Now.IsZero() {
		now := func(raw [][]byte) error {
			l.Now = timeOf(raw[0])
			return nil
		}
		err = s.write(ctx, []step{s.do("turn_lead", id, ttl), s.do("lock_lead", id, ttl),
			s.do("take_lead", id, ttl).into(into), s.do("now").into(now)})
	}
	if err != nil {
		return store.Leadership{}, fmt.Errorf("lead: %w", err)
	}
	return l, nil
}

// Rescue implements store.Keeper.
func (s *Store) Rescue(ctx context.Context, term int64, limit int) ([]store.Task, error) {
	var tasks []store.Task
	all := s.lookout.due(term, rescueAll-rescueSlack)
	err := s.write(ctx, s.pinned(s.do("leads_still", term), s.do("follow_clock", term), s.do("expire_workers", term),
		s.do("miss_workers", term), s.do("rescue", limit, all).into(func(raw [][]byte) error {
			var t store.Task
			readTask(&t, raw)
			t.State, t.Lease, t.Worker, t.Queue = store.Running, idOf(raw[17]), idOf(raw[18]), string(raw[19])
			t.Stray = raw[20][0] != 0
			tasks = append(tasks, t)
			return nil
		})))
	if err != nil {
		return nil, fmt.Errorf("rescue: %w", err)
	}
	if all && len(tasks) == 0 && limit > 0 {
		s.lookout.lookedAtAll(term)
	} else if len(tasks) > 0 {
		s.lookout.lookedAtAll(0) // there may be more
	}
	return tasks, nil
}

// Prune implements store.Keeper.
func (s *Store) Prune(ctx context.Context, term int64, keep store.Retention, limit int) (deleted int, err error) {
	r := retentionsOf(keep)
	classes := map[int64]string{}
	var dead uuids
	var xids []int64
	hand, next := time.UnixMicro(s.deadHand.Load()), int64(0)
	var over string
	steps := s.inOrder(s.do("leads_still", term))
	if young := r.youngest(); young > 0 {
		steps = append(steps, s.flushesDue(young, &over))
	}
	steps = append(steps, s.do("spent_dead", r.all, r.queues, r.completed, r.cancelled, r.discarded, limit, hand,
		s.pruneLooks).into(
		func(raw [][]byte) error {
			dead, xids = append(dead, idOf(raw[0])), append(xids, int64Of(raw[1]))
			return nil
		}))
	if young := least(r.all, r.completed, r.cancelled, r.discarded); young > 0 {
		steps = append(steps, s.do("dead_looks", hand, s.pruneLooks, young).into(func(raw [][]byte) error {
			next = timeOf(raw[0]).UnixMicro()
			return nil
		}))
	}
	var groups []step // prune groups of errors, which are deleted with the last of their tasks
	if stats := kept(keep.Stats); stats > 0 {
		groups = append(groups, s.do("prune_failures", stats, limit))
		steps = append(append(steps, s.do("prune_sums", stats), s.do("prune_late", stats)), groups...)
	}
	steps = append(steps, s.do("forget_workers", forgetAfter.Microseconds()), s.do("classes").into(
		func(raw [][]byte) error {
			classes[int64Of(raw[0])] = string(raw[1])
			return nil
		}))
	err = s.write(ctx, steps)
	if err == nil && over != "" {
		deleted, err = s.pruneFlushes(ctx, term, &r, over, limit)
	}
	some := min(len(dead), limit-deleted)
	if err == nil && some == len(dead) && some < limit {
		s.deadHand.Store(next)
	}
	if err == nil && some > 0 {
		deleted += some
		release := s.do("release_dead", dead[:some], xids[:some]).into(func(raw [][]byte) error {
			deleted -= arrayOf(raw[0]).n // tasks that another transaction has locked
			return nil
		})
		err = s.write(ctx, s.pinned(append([]step{s.do("hold_lead", term), release}, groups...)...))
	}
	if err == nil && !maps.Equal(classes, r.classes()) {
		err = s.classify(ctx, term, r.classes())
	}
	if err != nil {
		return 0, fmt.Errorf("prune: %w", err)
	}
	return deleted, nil
}

// classes returns the queues that keep completed tasks for much shorter or much longer than others, with "short" or
// "long".
func (r *retentions) classes() map[int64]string {
	classes, most := map[int64]string{}, r.all[0]
	for i, queue := range r.queues {
		switch own := r.completed[i]; {
		case own == most:
		case own == 0 || own >= 2*most && most > 0:
			classes[queue] = "long"
		case most == 0 || own <= most/2:
			classes[queue] = "short"
		}
	}
	return classes
}

// classify records the classes of queues. New segments have a part for each class.
func (s *Store) classify(ctx context.Context, term int64, classes map[int64]string) error {
	queues := slices.Sorted(maps.Keys(classes))
	names := make([]string, len(queues))
	for i, queue := range queues {
		names[i] = classes[queue]
	}
	return s.write(ctx, []step{s.do("hold_lead", term), s.do("forget_classes"), s.do("put_classes", queues, names)})
}

// kept returns a retention in microseconds. It rounds up because zero means forever.
func kept(d time.Duration) int64 { return int64((max(d, 0) + time.Microsecond - 1) / time.Microsecond) }

// lookout remembers when a check of all leases found none of a dead worker.
type lookout struct {
	mu   sync.Mutex
	term int64 // of the leader that checked; 0 if none
	at   time.Time
}

// due reports whether a leader should check all leases, because it has not done so for the given time.
func (l *lookout) due(term int64, after time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.term != term || time.Since(l.at) >= after
}

func (l *lookout) lookedAtAll(term int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.term, l.at = term, time.Now()
}
