package tend

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/store"
)

// StrangerKind is the kind of the records which say that tasks were postponed because no live worker of their queue
// had a handler for them. A record's name is the kind of those tasks.
const StrangerKind = "stranger"

const (
	// StrangerAgain is how often a worker that keeps postponing tasks of a kind reports it.
	StrangerAgain = time.Hour
	// strangerAge is how long a record lasts without such a report: longer than any of its tasks is postponed.
	strangerAge = lifecycle.LongestPutOff + 2*StrangerAgain
	// The maximum number of kinds that are recorded.
	mostStrangers = 1000

	recallIdle  = 5 * time.Second // between two rounds while nothing is postponed
	recallEvery = 2 * time.Second
	// recallAgain is the time after which a recall is repeated, for tasks postponed by a worker that did not know the
	// new worker yet. The time then doubles with each repetition.
	recallAgain = time.Minute
	// recallStretch is how many tasks are found before the first of them is changed.
	recallStretch = 5 * store.MaxPage
)

// NoteStranger records for the leader that tasks of a kind are postponed. It returns false if the maximum number of
// such kinds is reached.
func NoteStranger(ctx context.Context, s store.Recorder, kind string) (bool, error) {
	for tries := 3; ; tries-- {
		known, err := s.Records(ctx, store.RecordFilter{Kind: StrangerKind})
		if err != nil {
			return false, err
		}
		r := store.Record{Kind: StrangerKind, Name: kind, Body: []byte("{}")}
		if i := slices.IndexFunc(known, func(r store.Record) bool { return r.Name == kind }); i >= 0 {
			r.Version = known[i].Version
		} else if len(known) >= mostStrangers {
			return false, nil
		}
		_, _, err = s.PutRecord(ctx, store.PutRecord{Record: r})
		if err == nil || !errors.Is(err, store.ErrConflict) || tries == 0 {
			return err == nil, err
		}
	}
}

// recalls is what the leader remembers between two rounds.
type recalls struct {
	term  int64
	since map[taker]time.Time  // when a worker was first seen to claim from a queue
	last  map[string]time.Time // when the last recall of a kind began
	now   []*recall            // recalls in progress
}

type taker struct {
	worker store.ID
	queue  string
}

// recall brings forward the postponed tasks of a kind, one stretch at a time. Lists begin with the newest task, so
// recall finds all tasks of a stretch before it changes the first: the oldest of them run first.
type recall struct {
	kind   string
	queues []string
	before store.ID   // the last task that was found
	found  bool       // all tasks are found
	ids    []store.ID // the tasks of a stretch, newest first
	change bool       // the stretch is complete
}

// recall checks whether a worker with a handler for postponed tasks has started.
func (l *Leader) recall(ctx context.Context, term int64) (time.Duration, error) {
	r := &l.recalls
	if r.term != term {
		*r = recalls{term: term}
	}
	if len(r.now) > 0 {
		return 0, l.recallPage(ctx)
	}
	if !l.mayHave(term, StrangerKind) {
		*r = recalls{term: term}
		return recallIdle, nil
	}
	records, err := l.store.Records(ctx, store.RecordFilter{Kind: StrangerKind})
	if err != nil {
		return 0, err
	}
	if len(records) == 0 {
		*r = recalls{term: term}
		return recallIdle, nil
	}
	workers, err := l.working(ctx)
	if err != nil {
		return 0, err
	}
	r.look(workers, time.Now())
	for i := range records {
		if l.now().Sub(records[i].UpdatedAt) > strangerAge {
			if err := l.forgetStranger(ctx, term, records[i]); err != nil {
				return 0, err
			}
			continue
		}
		r.plan(records[i].Name, workers, time.Now())
	}
	if len(r.now) > 0 {
		return 0, nil
	}
	return recallEvery, nil
}

// working lists the live workers, except those that were told to stop claiming.
func (l *Leader) working(ctx context.Context) ([]store.Worker, error) {
	workers, err := l.store.Workers(ctx)
	if err != nil {
		return nil, err
	}
	settings, err := l.store.Records(ctx, store.RecordFilter{Kind: QueueKind})
	if err != nil {
		return nil, err
	}
	for _, r := range settings {
		var of struct{ Quiet []store.ID }
		if err := json.Unmarshal(r.Body, &of); err != nil {
			l.o.Log.Error("recall: settings cannot be read", "queue", r.Name, "error", err)
		}
		workers = slices.DeleteFunc(workers, func(w store.Worker) bool { return slices.Contains(of.Quiet, w.ID) })
	}
	return workers, nil
}

func (l *Leader) forgetStranger(ctx context.Context, term int64, r store.Record) error {
	r.Body = nil
	_, _, err := l.store.PutRecord(ctx, store.PutRecord{Record: r, Term: term})
	if errors.Is(err, store.ErrConflict) { // more tasks were postponed in the meantime
		return nil
	}
	return err
}

// look records since when each worker has been claiming from its queues.
func (r *recalls) look(workers []store.Worker, now time.Time) {
	since := map[taker]time.Time{}
	for i := range workers {
		for _, q := range workers[i].Queues {
			at, known := r.since[taker{workers[i].ID, q}]
			if !known {
				at = now
			}
			since[taker{workers[i].ID, q}] = at
		}
	}
	r.since = since
}

// plan begins a recall of a kind if a worker with a handler for it has started since the last recall, and repeats the
// recall some time later.
func (r *recalls) plan(kind string, workers []store.Worker, now time.Time) {
	var queues []string
	var newest time.Time
	for i := range workers {
		for _, q := range workers[i].Queues {
			if !workers[i].Takes(q, kind) {
				continue
			}
			queues = append(queues, q)
			if at := r.since[taker{workers[i].ID, q}]; at.After(newest) {
				newest = at
			}
		}
	}
	if len(queues) == 0 {
		delete(r.last, kind)
		return
	}
	last, recalled := r.last[kind]
	if recalled && !last.Before(newest) && now.Sub(last) < max(recallAgain, last.Sub(newest)) {
		return
	}
	if r.last == nil {
		r.last = map[string]time.Time{}
	}
	r.last[kind] = now
	slices.Sort(queues)
	r.now = append(r.now, &recall{kind: kind, queues: slices.Compact(queues)})
}

// recallPage continues the first recall in progress.
func (l *Leader) recallPage(ctx context.Context) error {
	r := l.recalls.now[0]
	if !r.change {
		return l.findPage(ctx, r)
	}
	rest := max(0, len(r.ids)-store.MaxPage)
	if err := l.recallSome(ctx, r, r.ids[rest:]); err != nil {
		return err
	}
	r.ids = r.ids[:rest]
	if r.change = rest > 0; !r.change && r.found {
		l.recalls.now = l.recalls.now[1:]
	}
	return nil
}

func (l *Leader) findPage(ctx context.Context, r *recall) error {
	tasks, err := l.strangers(ctx, r, store.Filter{Before: r.before, Limit: store.MaxPage})
	if err != nil {
		return err
	}
	for i := range tasks {
		r.before = tasks[i].ID
		r.ids = append(r.ids, r.before)
	}
	r.found = len(tasks) < store.MaxPage
	r.change = r.found || len(r.ids) >= recallStretch
	return nil
}

// strangers lists the tasks of a recall. It also lists scheduled tasks, although only retryable ones count: for
// retryable tasks alone, PostgreSQL might use the index by error and kind, which has no order, and read all of it for
// each page.
func (l *Leader) strangers(ctx context.Context, r *recall, f store.Filter) ([]store.Task, error) {
	f.Queues, f.Kinds, f.Fingerprint, f.NoArgs = r.queues, []string{r.kind}, lifecycle.StrangerPrint(r.kind), true
	f.States = []store.State{store.Scheduled, store.Retryable}
	return l.store.List(ctx, f)
}

// recallSome brings forward those of some tasks that are still postponed, the oldest first.
func (l *Leader) recallSome(ctx context.Context, r *recall, ids []store.ID) error {
	if len(ids) == 0 {
		return nil
	}
	tasks, err := l.strangers(ctx, r, store.Filter{IDs: ids, Detail: true, Limit: len(ids)})
	if err != nil {
		return err
	}
	e := store.Edit{Change: store.Change{Op: store.Reschedule}}
	for _, t := range slices.Backward(tasks) {
		if t.State == store.Retryable && !givenTime(&t) {
			e.IDs = append(e.IDs, t.ID)
		}
	}
	if len(e.IDs) == 0 {
		return nil
	}
	l.o.Log.Info("recall: a worker has a handler for postponed tasks", "kind", r.kind, "tasks", len(e.IDs))
	// The next recall gets the tasks that are held.
	if _, err := l.store.Edit(ctx, e); err != nil && !errors.As(err, new(*store.HeldError)) {
		return err
	}
	return nil
}

// givenTime reports whether the run time of a task was set by hand since it was postponed. If there were several
// changes, only the last one is known.
func givenTime(t *store.Task) bool {
	if t.RunAt.Sub(t.ClaimedAt) > strangerAge {
		return true
	}
	c := t.Detail.Changed
	return c != nil && (c.How == store.WasRescheduled || c.How == store.WasRetried) && c.At.After(t.ClaimedAt)
}
