package couchbase

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// List implements store.Reader. It reads given ids by key. For all other filters it queries an index, and then checks
// the documents.
func (s *Store) List(ctx context.Context, f store.Filter) (_ []store.Task, err error) {
	defer says(&err, "list")
	limit := min(cmp.Or(max(f.Limit, 0), 100), store.MaxPage)
	text, a := queryList(&f)
	a["before"] = "~" // after all ids
	if !f.Before.IsZero() {
		in, _ := block(f.Before.String()) // whose sheet may have tasks with smaller ids
		a["before"] = in.ID + "~"
	}
	var found []*doc
	sheet := "" // the last sheet read; it comes before all tasks of its block
	for more := true; more; {
		var ids []string
		for _, id := range f.IDs {
			ids = append(ids, id.String())
		}
		n := int(min(int64(limit), int64(limit)/max(s.perDocument.Load(), 1)+1))
		if ids == nil {
			a["n"] = n
			if ids, err = query[string](ctx, s, text, a); err != nil {
				return nil, err
			}
		}
		next, err := s.readAll(ctx, &f, ids)
		if err != nil {
			return nil, err
		}
		if len(ids) > 0 {
			s.perDocument.Store(int64(len(next) / len(ids)))
		}
		found = append(found, next...)
		slices.SortFunc(found, func(a, b *doc) int { return cmp.Compare(b.ID, a.ID) })
		// A task that has left its sheet may be found by the sheet's id and by its own.
		found = slices.CompactFunc(found, func(a, b *doc) bool { return a.ID == b.ID })
		if len(f.IDs) > 0 || len(ids) < n {
			break
		}
		for _, id := range ids {
			if isSheet(ref{inTask, id}) {
				sheet = id
			}
		}
		last := ids[n-1]
		a["before"] = last
		// A block with a sheet is read to its end, because tasks outside the sheet may come before those in it.
		more = len(found) < limit || sheet == sheetID(last) && sheet == sheetID(found[limit-1].ID)
	}
	found = found[:min(len(found), limit)]
	return collect(len(found), func(i int) (t store.Task, err error) {
		t = found[i].task().answer(f.Detail)
		if f.NoArgs {
			t.Args = nil
		}
		if f.Detail {
			t.Detail.Needs, err = s.needStates(ctx, &f, found[i].task())
		}
		return t, err
	})
}

// readAll returns the tasks with the ids, or in sheets with the ids, that match the filter.
func (s *Store) readAll(ctx context.Context, f *store.Filter, ids []string) ([]*doc, error) {
	docs, err := s.spread(ctx, ids, s.peek)
	var found []*doc
	for _, d := range docs {
		is, ok := d.taskIn()
		if !ok {
			continue
		}
		if t := is.answer(false); f.Matches(&t, is.Fingerprint) {
			found = append(found, d)
		}
	}
	return found, err
}

// needStates returns the needs of a task, with their states unless the filter leaves them out.
func (s *Store) needStates(ctx context.Context, f *store.Filter, t *task) ([]store.NeedState, error) {
	var needs []store.NeedState
	for _, n := range t.Needs {
		need := store.NeedState{Need: store.Need{Task: n.Task, OnFailure: n.On}}
		if !f.NoStates {
			d, err := s.peek(ctx, taskRef(n.Task))
			if err != nil {
				return nil, err
			}
			if d != nil {
				need.State = d.task().state()
			}
		}
		needs = append(needs, need)
	}
	return needs, nil
}

// between calls do for the documents of the collection meta whose keys are between two others, in order. A document for
// which do fails counts as damaged. It reads the documents in pages, so that each query is short.
func (s *Store) between(
	ctx context.Context, after, until string, do func(id string, m json.RawMessage) error,
) error {
	type row struct {
		ID string          `json:"id"`
		M  json.RawMessage `json:"m"`
	}
	for more := true; more; {
		docs, err := query[row](ctx, s, queryNames, args{"after": after, "until": until, "n": store.MaxPage})
		if err != nil {
			return err
		}
		for _, d := range docs {
			if err := do(d.ID, d.M); err != nil {
				_ = s.passing(fmt.Errorf("document %s is %w: %w", d.ID, errDamaged, err))
			}
			after = d.ID
		}
		more = len(docs) == store.MaxPage
	}
	return nil
}

// Count implements store.Reader.
func (s *Store) Count(ctx context.Context) (_ []store.Count, err error) {
	defer says(&err, "count")
	type count struct {
		Queue  string `json:"q"`
		State  string `json:"st"`
		N      int64  `json:"n"`
		Lent   int64  `json:"lent"` // for sheets: running tasks
		Oldest int64  `json:"oldest"`
	}
	now := s.now(ctx)
	rows, err := query[count](ctx, s, queryCount, nil)
	var counts []store.Count
	add := func(queue string, state store.State, n int64, oldest time.Duration) {
		for i := range counts {
			if c := &counts[i]; c.Queue == queue && c.State == state {
				c.Tasks, c.Oldest = c.Tasks+n, max(c.Oldest, oldest)
				return
			}
		}
		if n > 0 {
			counts = append(counts, store.Count{Queue: queue, State: state, Tasks: n, Oldest: oldest})
		}
	}
	for _, c := range rows {
		state, is := states[c.State]
		if !is { // a sheet
			add(c.Queue, store.Running, c.Lent, 0)
			state = store.Available
		}
		oldest := time.Duration(0)
		if state == store.Available && c.Oldest > 0 {
			oldest = max(time.Duration(now-c.Oldest)*time.Microsecond, 0)
		}
		add(c.Queue, state, c.N, oldest)
	}
	slices.SortFunc(counts, func(a, b store.Count) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.State, b.State))
	})
	return counts, err
}

// Workers implements store.Reader. A worker that cannot be read does not affect others.
func (s *Store) Workers(ctx context.Context) (live []store.Worker, err error) {
	defer says(&err, "workers")
	ids, err := s.listed(ctx, s.meta, workerList)
	if err != nil {
		return nil, err
	}
	all, errs := tryEach(len(ids), func(i int) (*store.Worker, error) { return s.live(ctx, ids[i]) })
	for _, w := range all {
		if w != nil {
			live = append(live, *w)
		}
	}
	slices.SortFunc(live, func(a, b store.Worker) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt), slices.Compare(a.ID[:], b.ID[:]))
	})
	return live, errors.Join(errs...)
}

func (s *Store) live(ctx context.Context, id string) (*store.Worker, error) {
	d, err := s.read(ctx, workerRef(id))
	if d == nil || err != nil || d.worker().G == nil {
		return nil, err
	}
	w := d.worker()
	one := w.Info
	one.StartedAt, one.BeatAt, one.ExpiresAt = instant(w.Started), instant(w.Beat), instant(w.Expires)
	_, held, err := s.heldIn(ctx, id, w.meant(slices.Collect(maps.Keys(w.Leases))...))
	one.Running = len(held)
	return &one, err
}
