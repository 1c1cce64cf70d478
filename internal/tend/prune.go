package tend

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"time"

	"github.com/tuskqueue/tusk/store"
)

const (
	pruneBatch = 2000
	pruneEvery = 30 * time.Second
	// prunePause leaves the database to others between two batches.
	prunePause = 20 * time.Millisecond
)

// Forever is a retention without an end.
const Forever time.Duration = -1

// QueueRetention says how long the finished tasks of one queue are kept, by outcome. A
// zero field is what holds for all queues.
type QueueRetention struct {
	Completed time.Duration `json:"completed,omitempty"`
	Cancelled time.Duration `json:"cancelled,omitempty"`
	Discarded time.Duration `json:"discarded,omitempty"`
}

// over returns what a queue keeps for which this was set.
func (q QueueRetention) over(all store.Retention) store.Retention {
	keep := func(own, other time.Duration) time.Duration { return max(cmp.Or(own, other), 0) }
	return store.Retention{Completed: keep(q.Completed, all.Completed), Cancelled: keep(q.Cancelled, all.Cancelled),
		Discarded: keep(q.Discarded, all.Discarded)}
}

// retention is what this process was told, and what was set for queues.
func (l *Leader) retention(ctx context.Context) (store.Retention, error) {
	keep := l.o.Retention()
	records, err := l.store.Records(ctx, QueueKind)
	if err != nil {
		return keep, err
	}
	own := map[string]store.Retention{}
	maps.Copy(own, keep.Queues)
	for _, r := range records {
		var settings struct{ Retention QueueRetention }
		if err := json.Unmarshal(r.Body, &settings); err != nil {
			l.o.Log.Error("prune: settings cannot be read, keeping all that the queue has", "queue", r.Name, "error", err)
			own[r.Name] = store.Retention{}
			continue
		}
		if settings.Retention == (QueueRetention{}) {
			continue
		}
		base, named := own[r.Name]
		if !named {
			base = keep
		}
		own[r.Name] = settings.Retention.over(base)
	}
	keep.Queues = own
	return keep, nil
}

// prune deletes what is past its retention, a batch at a time.
func (l *Leader) prune(ctx context.Context, term int64) (time.Duration, error) {
	forgotten := l.forgetSuspects(ctx, term)
	keep, err := l.retention(ctx)
	if err != nil {
		return 0, errors.Join(forgotten, err)
	}
	n, err := l.store.Prune(ctx, term, keep, pruneBatch)
	if err = errors.Join(forgotten, err); n == pruneBatch {
		return prunePause, err
	}
	return pruneEvery, err
}
