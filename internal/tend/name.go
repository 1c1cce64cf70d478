package tend

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// NameKind is the kind of the records that keep the names of queues that have had a task. Such a queue stays listed
// without tasks until it is removed.
const NameKind = "queue-name"

// Name is the body of a NameKind record.
type Name struct {
	// Removed says that the queue was removed, at the time of the record. Tasks that ended before then do not bring it
	// back.
	Removed bool `json:"removed,omitempty"`
}

const (
	nameEvery = 10 * time.Second
	// Between two counts of unfinished tasks, whose queues are listed anyway.
	countEvery = time.Minute
	nameSpan   = time.Hour // how far back a new leader reads
	nameBatch  = 500       // records per step
	mostNames  = 10000     // queues beyond that are listed only while they have tasks
)

// name records the names of queues that have tasks, or had some since the last round. It reads statistics and, less
// often, counts, but no tasks.
func (l *Leader) name(ctx context.Context, term int64) (time.Duration, error) {
	now := l.now()
	from := l.named
	if from.IsZero() {
		from = now.Add(-nameSpan)
	}
	seen, err := l.lastSeen(ctx, from, now)
	if err != nil {
		return 0, err
	}
	records, err := l.store.Records(ctx, store.RecordFilter{Kind: NameKind})
	if err != nil {
		return 0, err
	}
	var changed []store.Record
	for _, r := range records {
		at, busy := seen[r.Name]
		delete(seen, r.Name)
		var n Name
		switch err := json.Unmarshal(r.Body, &n); {
		case err == nil && !n.Removed:
		case busy && !at.Before(r.UpdatedAt):
			r.Body = []byte("{}")
			changed = append(changed, r)
		case r.UpdatedAt.Before(now.Add(-2 * nameSpan)): // no leader reads back that far
			r.Body = nil
			changed = append(changed, r)
		}
	}
	for name := range seen {
		if len(records)+len(changed) < mostNames {
			changed = append(changed, store.Record{Kind: NameKind, Name: name, Body: []byte("{}")})
		}
	}
	for _, r := range changed[:min(len(changed), nameBatch)] {
		_, _, err := l.store.PutRecord(ctx, store.PutRecord{Record: r, Term: term})
		if err != nil && !errors.Is(err, store.ErrConflict) {
			return 0, err
		}
	}
	if len(changed) > nameBatch {
		return 0, nil
	}
	l.named = now
	return nameEvery, nil
}

// lastSeen returns when each queue was last seen with a task: now, or when the interval of its statistics began.
func (l *Leader) lastSeen(ctx context.Context, from, now time.Time) (map[string]time.Time, error) {
	seen := map[string]time.Time{}
	stats, err := l.store.Stats(ctx, store.StatsFilter{Bucket: time.Minute, From: from.Truncate(time.Minute)})
	if err != nil {
		return nil, err
	}
	for i := range stats {
		if s := &stats[i]; s.At.After(seen[s.Queue]) {
			seen[s.Queue] = s.At
		}
	}
	if time.Since(l.counted) < countEvery {
		return seen, nil
	}
	counts, err := l.store.Count(ctx)
	if err != nil {
		return nil, err
	}
	for _, c := range counts {
		seen[c.Queue] = now
	}
	l.counted = time.Now()
	return seen, nil
}
