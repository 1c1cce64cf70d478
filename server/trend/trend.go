// Package trend records how often the errors of a group happened over the last hours. Engines count the failures of
// a group, but not when they happened. So the counts are recorded regularly, and the difference between two records
// shows when.
//
// This package may use a tusk.Client and the records of its store.
package trend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

const (
	recordKind = "error-counts"

	// Slot is the time between two notes. Slots is the number of slots of a trend.
	Slot  = 10 * time.Minute
	Slots = 72

	maxGroups = 1000
)

// note is a record of one time: the counts of groups that had failed recently. All other counts were as in the
// previous note.
type note struct {
	At     time.Time        `json:"at"`
	Counts map[string]int64 `json:"counts"`
}

// Trend records and reads counts. Make one with New.
type Trend struct {
	client *tusk.Client
	log    *slog.Logger
}

// New returns a trend.
func New(client *tusk.Client, log *slog.Logger) *Trend { return &Trend{client, log} }

// Run records counts until ctx ends. Several processes may run it; the first one records.
func (t *Trend) Run(ctx context.Context) {
	for {
		now := time.Now()
		if err := t.Note(ctx, now); err != nil && ctx.Err() == nil {
			t.log.Warn("error counts", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(now.Truncate(Slot).Add(Slot).Sub(now)):
		}
	}
}

// Note records the counts for the slot of now, unless that was done already, and deletes notes that are too old.
func (t *Trend) Note(ctx context.Context, now time.Time) error {
	now = now.UTC()
	records, err := t.client.Store().Records(ctx, store.RecordFilter{Kind: recordKind})
	if err != nil {
		return fmt.Errorf("notes: %w", err)
	}
	name, oldest := nameOf(now), nameOf(now.Add(-(Slots+1)*Slot))
	if slices.ContainsFunc(records, func(r store.Record) bool { return r.Name == name }) {
		return nil
	}
	groups, err := t.client.Errors(ctx, store.ErrorFilter{Since: now.Add(-2 * Slot), Limit: maxGroups})
	if err != nil {
		return err
	}
	n := note{At: now, Counts: map[string]int64{}}
	for _, g := range groups {
		n.Counts[keyOf(&g)] = g.Count
	}
	body, err := json.Marshal(n)
	if err != nil {
		return err
	}
	if err := t.put(ctx, store.Record{Kind: recordKind, Name: name, Body: body}); err != nil {
		return err
	}
	for _, r := range records {
		if r.Name < oldest {
			r.Body = nil
			if err := t.put(ctx, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// put writes a record, unless another process has written it already.
func (t *Trend) put(ctx context.Context, r store.Record) error {
	if _, _, err := t.client.Store().PutRecord(ctx, store.PutRecord{Record: r}); err != nil &&
		!errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("note: %w", err)
	}
	return nil
}

func nameOf(at time.Time) string { return at.UTC().Truncate(Slot).Format("2006-01-02T15:04") }

func keyOf(g *store.ErrorGroup) string { return g.Fingerprint + " " + g.Queue + " " + g.Kind }

// Of returns the failures of each group by slot. The last slot is the current one.
func (t *Trend) Of(ctx context.Context, groups []store.ErrorGroup, now time.Time) ([][]int64, error) {
	records, err := t.client.Store().Records(ctx, store.RecordFilter{Kind: recordKind})
	if err != nil {
		return nil, fmt.Errorf("error counts: %w", err)
	}
	slices.SortFunc(records, func(a, b store.Record) int { return strings.Compare(a.Name, b.Name) })
	notes := make([]note, len(records))
	for i, r := range records {
		if err := json.Unmarshal(r.Body, &notes[i]); err != nil {
			return nil, fmt.Errorf("error counts %s: %w", r.Name, err)
		}
	}
	all := make([][]int64, len(groups))
	for i := range groups {
		all[i] = spread(&groups[i], notes, now)
	}
	return all, nil
}

// spread distributes the failures of a group over the slots. Failures between two notes count in the slot that ended
// with the later one. Failures after the last note count when the group was last seen.
func spread(g *store.ErrorGroup, notes []note, now time.Time) []int64 {
	slots := make([]int64, Slots)
	begin := now.Truncate(Slot).Add(-(Slots - 1) * Slot)
	add := func(at time.Time, n int64) {
		if i := int(at.Sub(begin) / Slot); n > 0 && !at.Before(begin) {
			slots[min(i, Slots-1)] += n
		}
	}
	known, before := !g.First.Before(begin), int64(0)
	for _, n := range notes {
		count, counted := n.Counts[keyOf(g)]
		if !counted {
			continue
		}
		if at := n.At.Add(-Slot / 2); known {
			if at.Before(g.First) {
				at = g.First
			}
			add(at, count-before)
		}
		known, before = true, count
	}
	if !known {
		before = g.Count - 1 // only the latest failure is certain
	}
	add(g.Last, g.Count-before)
	return slots
}
