package sqlite

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// List implements store.Reader. One index leads to the tasks, newest first, and the other conditions are tested along
// the way. See lead for the choice of the index.
func (s *Store) List(ctx context.Context, f store.Filter) (tasks []store.Task, err error) {
	if f.Limit <= 0 {
		f.Limit = 100
	}
	f.Limit = min(f.Limit, store.MaxPage)
	err = s.readLong(ctx, func(ctx context.Context, c session) error {
		l := &list{ctx: ctx, session: c, store: s, filter: f, names: readNames(ctx, c, s)}
		tasks, err = l.page()
		return err
	})
	return answer(tasks, "list", err)
}

// list is one List in progress.
type list struct {
	session
	ctx    context.Context
	store  *Store
	filter store.Filter
	names  func(int64) (name, error)
	// The kinds that match the filter's queues and kinds; nil if all do.
	kinds []int64
	// All leases; only read if a task of the page is running.
	claims []*lease
	found  []*stored
	// Which tables have rows for some of the page's tasks.
	beside struct{ attempts, notes, logs, stops bool }
}

func (l *list) page() ([]store.Task, error) {
	some, err := l.findKinds()
	if err != nil || !some {
		return nil, err
	}
	leads, err := l.lead()
	if err != nil {
		return nil, err
	}
	for _, lead := range leads {
		if err := l.follow(lead); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(l.found, func(a, b *stored) int { return slices.Compare(b.ID[:], a.ID[:]) })
	l.found = slices.CompactFunc(l.found, func(a, b *stored) bool { return a.ID == b.ID })
	l.found = l.found[:min(len(l.found), l.filter.Limit)]
	if l.filter.Detail && len(l.found) > 0 {
		if err := l.lookBeside(); err != nil {
			return nil, err
		}
	}
	tasks := make([]store.Task, len(l.found))
	for i, t := range l.found {
		if t.State == store.Running {
			if err := l.readLease(t); err != nil {
				return nil, err
			}
		}
		if l.filter.Detail {
			if err := l.readDetail(t); err != nil {
				return nil, err
			}
		}
		tasks[i] = t.Task
	}
	return tasks, nil
}

// findKinds turns the filter's queues and kinds into numbers, and reports whether there are any.
func (l *list) findKinds() (bool, error) {
	if len(l.filter.Queues) == 0 && len(l.filter.Kinds) == 0 {
		return true, nil
	}
	err := l.each(l.ctx, "list.kinds", func(r row) error {
		l.kinds = append(l.kinds, r.int(0))
		return nil
	}, inJSON(l.filter.Queues), inJSON(l.filter.Kinds))
	return len(l.kinds) > 0, err
}

// follow walks along a lead until the page is full. SQLite determines which tasks are on the page before it returns the
// first row. A driver can interrupt it only until then: between two rows, SQLite would skip other rows to the end.
func (l *list) follow(lead lead) error {
	where, args := l.conditions()
	columns := statements()["list.columns"]
	if l.filter.NoArgs {
		columns = strings.Replace(columns, "t.args", "null", 1)
	}
	const lane = "\nleft join tusk_lane l on l.id = t.lane"
	text := "with page(num) as materialized (\nselect t.num " + lead.from + lane +
		"\nwhere " + strings.Join(append([]string{lead.where}, where...), " and ") + "\n" + lead.order + "\nlimit ?)\n" +
		columns + "\nfrom page p cross join tusk_task t on t.num = p.num" + lane
	args = append(append(slices.Clone(lead.values), args...), l.filter.Limit)
	return l.dynamic(l.ctx, text, func(r row) error {
		t := &stored{}
		if err := t.scan(r, l.names); err != nil {
			return err
		}
		t.scanRest(r)
		l.found = append(l.found, t)
		return nil
	}, args...)
}

// conditions returns the conditions that every task of the page must meet.
func (l *list) conditions() (where []string, args []any) {
	must := func(condition string, values ...any) {
		where, args = append(where, condition), append(args, values...)
	}
	f := &l.filter
	if !f.Before.IsZero() {
		must("t.id < ?", f.Before)
	}
	if l.kinds != nil {
		must("t.kind in (select value from json_each(?))", inJSON(l.kinds))
	}
	if len(f.States) > 0 {
		states := make([]int, len(f.States))
		for i, s := range f.States {
			states[i] = int(s)
		}
		must("(case when t.state = 3 and t.pos <= l.cursor then 4 else t.state end) in (select value from json_each(?))",
			inJSON(states))
	}
	if len(f.Tenants) > 0 {
		must("coalesce(t.tenant, '') in (select value from json_each(?))", inJSON(f.Tenants))
	}
	for _, tag := range f.Tags {
		must("exists (select 1 from tusk_tag g where g.tag = ? and g.id = t.id)", tag)
	}
	if f.Key != "" {
		must("t.key = ?", f.Key)
	}
	if !f.Workflow.IsZero() {
		must("t.workflow = ?", f.Workflow)
	}
	if f.Fingerprint != "" {
		must("(select e.fingerprint from tusk_error e where e.id = t.failure) = ?", f.Fingerprint)
	}
	if !f.From.IsZero() {
		must("t.enqueued_at >= ?", micros(f.From))
	}
	if !f.Until.IsZero() {
		must("t.enqueued_at < ?", micros(f.Until))
	}
	return where, args
}

// inJSON encodes a list as one parameter of a statement, or null if it is empty.
func inJSON[T any](values []T) any {
	if len(values) == 0 {
		return nil
	}
	text, err := json.Marshal(values)
	if err != nil {
		panic(err) // numbers and strings can always be encoded
	}
	return string(text)
}

// readLease sets the lease and the worker of a running task.
func (l *list) readLease(t *stored) (err error) {
	if l.claims == nil {
		if l.claims, err = allLeases(l.ctx, l.session); err != nil {
			return err
		}
	}
	if held := covering(l.claims, t.lane, t.pos); held != nil {
		t.hold(held.token, held.worker, at(held.claimedAt))
	}
	return nil
}

// lookBeside finds out which other tables have rows for the tasks of the page.
func (l *list) lookBeside() error {
	first, last := l.found[0].num, l.found[0].num
	for _, t := range l.found {
		first, last = min(first, t.num), max(last, t.num)
	}
	r, err := one(l.ctx, l.session, "list.beside", first, last, l.found[len(l.found)-1].ID, l.found[0].ID)
	if err == nil {
		b := &l.beside
		b.attempts, b.notes, b.logs, b.stops = r.int(0) > 0, r.int(1) > 0, r.int(2) > 0, r.int(3) > 0
	}
	return err
}

// readDetail reads what other tables hold of a task.
func (l *list) readDetail(t *stored) error {
	t.Detail = &store.Detail{}
	if err := l.readAttempts(t); err != nil {
		return err
	}
	err := l.each(l.ctx, "need.states", func(r row) error {
		need := store.Need{Task: r.id(0), OnFailure: store.OnFailure(r.int(1))}
		t.Detail.Needs = append(t.Detail.Needs, store.NeedState{Need: need, State: store.State(r.int(2))})
		return nil
	}, t.ID)
	if err != nil {
		return err
	}
	if l.beside.notes {
		if err := l.readNote(t); err != nil {
			return err
		}
	}
	if l.beside.logs {
		err := l.each(l.ctx, "list.logs", func(r row) error {
			t.Detail.Logs = append(t.Detail.Logs, store.LogLine{At: r.time(0), Attempt: int(r.int(1)), Level: r.text(2),
				Text: r.text(3)})
			return nil
		}, t.num)
		if err != nil {
			return err
		}
		t.Detail.Logs = rules.Lines(t.Detail.Logs)
	}
	if l.beside.stops {
		stop, err := one(l.ctx, l.session, "list.stop", t.ID)
		t.Detail.CancelRequested = stop != nil
		return err
	}
	return nil
}

// readNote reads what handlers have recorded, and how the task was last changed.
func (l *list) readNote(t *stored) error {
	note, err := one(l.ctx, l.session, "list.note", t.num)
	if err == nil && note != nil {
		t.Detail.Output = note.blob(0)
		if !note.null(1) {
			t.Detail.Progress = &store.Progress{Percent: note.float(1), Message: note.text(2)}
		}
		if !note.null(3) {
			t.Detail.Changed = &store.LastChange{At: note.time(3), How: store.How(note.text(4))}
		}
	}
	return err
}

// readAttempts reads a task's history: the failed attempts and the latest one.
func (l *list) readAttempts(t *stored) error {
	var past []store.Attempt
	add := func(a store.Attempt) {
		if n := len(past); n > 0 && past[n-1].Error == "" {
			past = past[:n-1] // neither failed nor the latest any longer
		}
		past = append(past, a)
	}
	if l.beside.attempts {
		err := l.each(l.ctx, "list.attempts", func(r row) error {
			add(store.Attempt{Number: int(r.int(0)), Worker: r.id(1), StartedAt: r.time(2), EndedAt: r.time(3),
				Outcome: store.State(r.int(4)), Error: r.text(5), Trace: r.text(6), Fingerprint: r.text(7)})
			return nil
		}, t.num)
		if err != nil {
			return err
		}
	}
	if !t.last.IsZero() {
		add(store.Attempt{Number: t.Attempt, Worker: t.last, StartedAt: t.ClaimedAt, EndedAt: t.FinishedAt, Outcome: t.State})
	}
	t.Detail.Attempts = past
	return nil
}

// Count implements store.Reader. It reads counters, and the head of each lane.
func (s *Store) Count(ctx context.Context) ([]store.Count, error) {
	counts := map[wait]*store.Count{}
	add := func(queue string, state store.State, tasks int64, age time.Duration) {
		if tasks == 0 {
			return
		}
		c := counts[wait{queue, state}]
		if c == nil {
			c = &store.Count{Queue: queue, State: state}
			counts[wait{queue, state}] = c
		}
		c.Tasks += tasks
		c.Oldest = max(c.Oldest, age)
	}
	err := s.read(ctx, func(ctx context.Context, c session) error {
		now := s.clock.now()
		err := c.each(ctx, "count.lanes", func(r row) error {
			add(r.text(0), store.Available, r.int(1), time.Duration(now-r.int(3))*time.Microsecond)
			add(r.text(0), store.Running, r.int(2), 0)
			return nil
		})
		if err != nil {
			return err
		}
		return c.each(ctx, "count.waiting", func(r row) error {
			add(r.text(0), store.State(r.int(1)), r.int(2), 0)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("count: %w", err)
	}
	all := make([]store.Count, 0, len(counts))
	for _, c := range counts {
		all = append(all, *c)
	}
	slices.SortFunc(all, func(a, b store.Count) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.State, b.State))
	})
	return all, nil
}

// Workers implements store.Reader.
func (s *Store) Workers(ctx context.Context) ([]store.Worker, error) {
	var living []store.Worker
	err := s.read(ctx, func(ctx context.Context, c session) error {
		leases, err := allLeases(ctx, c)
		if err != nil {
			return err
		}
		held := map[store.ID]int64{}
		for _, l := range leases {
			held[l.worker] += l.open
		}
		return c.each(ctx, "worker.list", func(r row) error {
			w := store.Worker{ID: r.id(0), Host: r.text(1), PID: int(r.int(2)), Concurrency: int(r.int(4)), Version: r.text(5),
				StartedAt: r.time(7), BeatAt: r.time(8), ExpiresAt: r.time(9), Running: int(held[r.id(0)]),
				Hung: int(r.int(10))}
			_ = json.Unmarshal(r.blob(3), &w.Queues) // an unreadable worker does not hide others
			_ = json.Unmarshal(r.blob(6), &w.Kinds)
			living = append(living, w)
			return nil
		})
	})
	return answer(living, "workers", err)
}
