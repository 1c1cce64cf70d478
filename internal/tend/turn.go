package tend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/internal/allot"
	"github.com/tuskqueue/tusk/store"
)

const (
	turnGroups  = 5000 // groups looked at in one round
	turnHeads   = 500  // waiting tasks looked at in each
	grantBatch  = 1000
	settingsAge = time.Second // how soon changed limits count

	turnBusy = 5 * time.Millisecond   // between rounds while somebody waits
	turnIdle = 100 * time.Millisecond // while nobody does
)

// turns is what the leader remembers between two rounds.
type turns struct {
	read    time.Time // when what follows was read
	limits  map[string]allot.Limits
	rates   map[string]*rated
	workers map[string]int // concurrency of living workers, by queue
	shares  map[string]*allot.Shares
	ahead   map[string]*window
}

// rated is a queue's usage of its rates and the version it was stored under.
type rated struct {
	usage   allot.Rates
	version int64
}

// window is how many tasks of a queue may have their turn at a time: enough to keep
// its workers busy, and not so many that a late tenant finds all turns given away.
type window struct{ size int }

const largestWindow = 20000

// turn hands out turns.
func (l *Leader) turn(ctx context.Context, term int64) (time.Duration, error) {
	t := &l.turns
	groups, err := l.store.Turns(ctx, term, turnGroups, turnHeads)
	if err != nil {
		return 0, err
	}
	waiting := slices.ContainsFunc(groups, func(g store.Turns) bool { return len(g.Waiting) > 0 })
	if !waiting {
		return turnIdle, nil
	}
	if time.Since(t.read) > settingsAge {
		if err := l.readLimits(ctx); err != nil {
			return 0, err
		}
	}
	granted := 0
	for name, of := range byQueue(groups) {
		n, err := l.share(ctx, term, name, of)
		if err != nil {
			return 0, fmt.Errorf("queue %s: %w", name, err)
		}
		granted += n
	}
	if granted > 0 {
		return turnBusy, nil
	}
	return 4 * turnBusy, nil
}

// share hands out the turns of one queue. What was used of its rates is stored
// before the turns are granted: a leader that dies in between has given away too
// few and not too many.
func (l *Leader) share(ctx context.Context, term int64, name string, groups []store.Turns) (int, error) {
	t := &l.turns
	limits := t.limits[name]
	if t.shares[name] == nil {
		t.shares[name], t.ahead[name] = &allot.Shares{}, &window{}
	}
	held := 0
	for _, g := range groups {
		held += int(g.Held)
	}
	room := t.ahead[name].room(held, t.workers[name])
	usage := t.rates[name]
	if usage == nil {
		usage = &rated{usage: allot.Rates{}}
		t.rates[name] = usage
	}
	now := l.now()
	ids := allot.Pick(allot.Waiting{Limits: limits, Groups: groups, Room: room}, t.shares[name], usage.usage, now)
	if len(ids) == 0 {
		return 0, nil
	}
	if limits.Rated() {
		if err := l.remember(ctx, term, name, usage, &limits, now); err != nil {
			return 0, err
		}
	}
	granted := 0
	for part := range slices.Chunk(ids, grantBatch) {
		n, err := l.store.Grant(ctx, term, part)
		if err != nil {
			return granted, err
		}
		granted += n
	}
	return granted, nil
}

// remember stores what was used of a queue's rates.
func (l *Leader) remember(ctx context.Context, term int64, name string, r *rated, limits *allot.Limits, now time.Time) error {
	r.usage.Tidy(limits, now)
	body, err := json.Marshal(r.usage)
	if err != nil {
		return err
	}
	version, _, err := l.store.PutRecord(ctx, store.PutRecord{Term: term,
		Record: store.Record{Kind: allot.StateKind, Name: name, Version: r.version, Body: body}})
	if err != nil {
		l.turns.read = time.Time{} // somebody else wrote it: read it again
		return err
	}
	r.version = version
	return nil
}

func (l *Leader) readLimits(ctx context.Context) error {
	limits, err := l.store.Records(ctx, allot.RecordKind)
	if err != nil {
		return err
	}
	states, err := l.store.Records(ctx, allot.StateKind)
	if err != nil {
		return err
	}
	workers, err := l.store.Workers(ctx)
	if err != nil {
		return err
	}
	t := &l.turns
	if t.shares == nil {
		t.shares, t.ahead = map[string]*allot.Shares{}, map[string]*window{}
	}
	t.limits, t.rates, t.workers = map[string]allot.Limits{}, map[string]*rated{}, map[string]int{}
	for _, r := range limits {
		var of allot.Limits
		if e := json.Unmarshal(r.Body, &of); e != nil {
			err = errors.Join(err, fmt.Errorf("limits of %s: %w", r.Name, e))
			continue
		}
		t.limits[r.Name] = of
	}
	for _, r := range states {
		of := &rated{usage: allot.Rates{}, version: r.Version}
		if e := json.Unmarshal(r.Body, &of.usage); e != nil {
			err = errors.Join(err, fmt.Errorf("rates of %s: %w", r.Name, e))
		}
		t.rates[r.Name] = of
	}
	for _, w := range workers {
		for _, queue := range w.Queues {
			t.workers[queue] += w.Concurrency
		}
	}
	t.read = time.Now()
	return err
}

// room is how many more may have their turn. The window grows while workers empty
// it between two rounds, and shrinks while they do not.
func (w *window) room(held, concurrency int) int {
	least := 2*concurrency + 20
	switch {
	case held < w.size/2:
		w.size *= 2
	case held > w.size*3/4:
		w.size -= w.size / 8
	}
	w.size = min(max(w.size, least), max(largestWindow, least))
	return w.size - held
}

func byQueue(groups []store.Turns) map[string][]store.Turns {
	queues := map[string][]store.Turns{}
	for _, g := range groups {
		queues[g.Queue] = append(queues[g.Queue], g)
	}
	return queues
}
