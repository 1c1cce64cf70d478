package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// List implements store.Reader. It reads along the index that leaves the least
// to look at: ids, then what few tasks have, then queue and kind.
func (s *Store) List(ctx context.Context, f store.Filter) (page []store.Task, err error) {
	if f.Limit <= 0 {
		f.Limit = 100
	}
	f.Limit = min(f.Limit, store.MaxPage)
	err = s.view(ctx, func(w *work) error {
		l := &listing{work: w, f: &f}
		if err := l.find(); err != nil {
			return err
		}
		page, err = l.tasks()
		return err
	})
	if err != nil {
		return nil, wrap("list", err)
	}
	return page, nil
}

// listing is one attempt to answer a List.
type listing struct {
	*work
	f    *store.Filter
	rows []*row
}

// find collects the rows of a page.
func (l *listing) find() error {
	f := l.f
	label := labelOf(f)
	switch {
	case len(f.IDs) > 0:
		return inParts(f.IDs, 500, func(ids []store.ID) error {
			var args []any
			for _, id := range ids {
				args = append(args, id[:])
			}
			return l.along("force index (tusk_task_id)", "t.id in ("+marks(len(ids))+")", args...)
		})
	case label != "":
		return l.labelled(label)
	case len(f.States) == 1 && f.States[0] == store.Running:
		return l.running()
	case len(f.Queues) > 0 || len(f.Kinds) > 0:
		return l.byKind()
	}
	return l.along("force index (tusk_task_id)", "true")
}

// labelOf returns a label that all tasks of a filter have; empty when there is
// none.
func labelOf(f *store.Filter) string {
	switch {
	case f.Key != "":
		return "k" + f.Key
	case !f.Workflow.IsZero():
		return "w" + string(f.Workflow[:])
	case f.Fingerprint != "":
		return "e" + f.Fingerprint
	case len(f.Tags) > 0:
		return "g" + f.Tags[0]
	case len(f.Tenants) == 1:
		return "t" + f.Tenants[0]
	case len(f.States) == 1:
		return stateLabel(f.States[0])
	}
	return ""
}

func marks(n int) string { return strings.TrimSuffix(strings.Repeat("?, ", n), ", ") }

// filter returns the conditions of a filter, and their arguments.
func (l *listing) filter() (string, []any) {
	f := l.f
	conditions, args := []string{"true"}, []any(nil)
	add := func(condition string, some ...any) {
		conditions, args = append(conditions, condition), append(args, some...)
	}
	among := func(column string, values []string) {
		if len(values) > 0 {
			add(column + " in (" + marks(len(values)) + ")")
			for _, v := range values {
				args = append(args, []byte(v))
			}
		}
	}
	among("t.queue", f.Queues)
	among("t.kind", f.Kinds)
	among("t.tenant", f.Tenants)
	if len(f.States) > 0 {
		var any []string
		for _, state := range f.States {
			any = append(any, stateConditions[state])
		}
		add("(" + strings.Join(any, " or ") + ")")
	}
	if f.Key != "" {
		add("t.tkey = ?", []byte(f.Key))
	}
	if !f.Workflow.IsZero() {
		add("t.workflow = ?", f.Workflow[:])
	}
	if f.Fingerprint != "" {
		add("t.fingerprint = ?", []byte(f.Fingerprint))
	}
	for _, tag := range f.Tags {
		add("exists (select 1 from tusk_label g where g.label = ? and g.id = t.id and g.place = t.place)", []byte("g"+tag))
	}
	if !f.From.IsZero() {
		add("t.enqueued_at >= ?", f.From.UnixMicro())
	}
	if !f.Until.IsZero() {
		add("t.enqueued_at < ?", f.Until.UnixMicro())
	}
	if !f.Before.IsZero() {
		add("t.id < ?", f.Before[:])
	}
	return strings.Join(conditions, " and "), args
}

// stateConditions tell states apart. A task of state 3 is available while it is
// on the list.
var stateConditions = map[store.State]string{
	store.Scheduled: "t.state = 1",
	store.Pending:   "t.state = 2",
	store.Available: "t.state = 3 and r.place is not null",
	store.Running:   "t.state = 3 and r.place is null",
	store.Retryable: "t.state = 5",
	store.Completed: "t.state = 6",
	store.Cancelled: "t.state = 7",
	store.Discarded: "t.state = 8",
}

// along lists tasks along an index, with one more condition.
func (l *listing) along(index, condition string, args ...any) error {
	filter, more := l.filter()
	text := strings.Replace(strings.Replace(q("list.tasks"), ":index", index, 1), ":filter", condition+" and "+filter, 1)
	return l.ask(l.collect, text, append(append(args, more...), l.f.Limit)...)
}

// labelled lists tasks that have a label.
func (l *listing) labelled(label string) error {
	filter, more := l.filter()
	condition, args := "l.label = ?", []any{[]byte(label)}
	if !l.f.Before.IsZero() {
		condition += " and l.id < ?"
		args = append(args, l.f.Before[:])
	}
	text := strings.Replace(q("list.labelled"), ":filter", condition+" and "+filter, 1)
	return l.ask(l.collect, text, append(append(args, more...), l.f.Limit)...)
}

func (l *listing) collect(rows *sql.Rows) error {
	available := false
	r, err := readRow(rows, &available)
	if err != nil {
		return err
	}
	if available {
		r.ready = &ready{}
	}
	l.rows = append(l.rows, r)
	return nil
}

// running lists what the leases hold.
func (l *listing) running() error {
	leases, err := l.readLeases(q("lease.all"))
	if err != nil {
		return err
	}
	var spans []span
	for _, lease := range leases {
		spans = append(spans, lease.spans...)
	}
	return inParts(spans, maxSpans, func(part []span) error {
		condition, args := where(part)
		condition = strings.ReplaceAll(strings.ReplaceAll(condition, "place", "t.place"), " n ", " t.n ")
		return l.along("force index (primary)", condition, args...)
	})
}

// maxKinds is how many kinds are listed apart and put together.
const maxKinds = 100

// byKind lists the tasks of each kind that is meant, and takes the newest.
func (l *listing) byKind() error {
	var kinds []name
	err := l.kinds(func(queue, kind string) bool {
		if (len(l.f.Queues) == 0 || slices.Contains(l.f.Queues, queue)) && (len(l.f.Kinds) == 0 || slices.Contains(l.f.Kinds, kind)) {
			kinds = append(kinds, name{queue, kind})
		}
		return len(kinds) <= maxKinds
	})
	if err != nil {
		return err
	}
	if len(kinds) > maxKinds {
		return l.along("force index (tusk_task_id)", "true")
	}
	for _, of := range kinds {
		if err := l.along("force index (tusk_task_kind)", "t.queue = ? and t.kind = ?", []byte(of.queue), []byte(of.key)); err != nil {
			return err
		}
	}
	return nil
}

// kinds walks the queues and kinds that there are, an index entry for each.
func (w *work) kinds(each func(queue, kind string) bool) error {
	var queue, kind []byte
	found := false
	next := func(text string, args ...any) error {
		found = false
		return w.ask(func(rows *sql.Rows) error { found = true; return rows.Scan(&queue, &kind) }, text, args...)
	}
	for queue = []byte{}; ; {
		if err := next(q("queue.next"), slices.Clone(queue)); err != nil || !found {
			return err
		}
		for found {
			if !each(string(queue), string(kind)) {
				return nil
			}
			if err := next(q("kind.next"), slices.Clone(queue), slices.Clone(kind)); err != nil {
				return err
			}
		}
	}
}

// tasks laps the newest rows into what List returns.
func (l *listing) tasks() ([]store.Task, error) {
	slices.SortFunc(l.rows, func(a, b *row) int { return cmp.Or(slices.Compare(b.ID[:], a.ID[:]), byPlace(a.ref, b.ref)) })
	l.rows = slices.CompactFunc(l.rows, func(a, b *row) bool { return a.ref == b.ref })
	l.rows = l.rows[:min(len(l.rows), l.f.Limit)]
	details, err := l.details()
	if err != nil {
		return nil, err
	}
	leases, err := l.leasesOf(l.rows)
	if err != nil {
		return nil, err
	}
	tasks := make([]store.Task, len(l.rows))
	for i, r := range l.rows {
		t := r.Task
		t.Worker = store.ID{}
		if r.running() {
			t.State = store.Running
			if held := leases[r.ref]; held != nil {
				t = r.lent(held)
			}
		}
		t.Detail = details[r.ref]
		tasks[i] = t
	}
	return tasks, nil
}

// leasesOf finds the leases of running tasks.
func (w *work) leasesOf(rows []*row) (map[ref]*lease, error) {
	found := map[ref]*lease{}
	if !slices.ContainsFunc(rows, (*row).running) {
		return found, nil
	}
	leases, err := w.readLeases(q("lease.all"))
	if err != nil {
		return nil, err
	}
	at := map[ref]*lease{}
	for _, l := range leases {
		for _, r := range refsOf(l.spans) {
			at[r] = l
		}
	}
	for _, r := range rows {
		if r.running() {
			found[r.ref] = at[r.ref]
		}
	}
	return found, nil
}

// details reads what only Detail shows; nil unless it was asked for.
func (l *listing) details() (map[ref]*store.Detail, error) {
	if !l.f.Detail || len(l.rows) == 0 {
		return nil, nil
	}
	at, laps, refs := map[ref]*store.Detail{}, map[ref]ref{}, []ref(nil)
	for _, r := range l.rows {
		at[r.ref] = &store.Detail{}
		laps[ref{r.place, r.n, 0}] = r.ref
		refs = append(refs, ref{r.place, r.n, 0})
	}
	of := func(r ref) *store.Detail { return at[laps[ref{r.place, r.n, 0}]] }
	err := inParts(spansOf(refs), maxSpans, func(part []span) error {
		text, args := among("attempt.read", part)
		l.buf = append(l.buf, stmt{text, args, func(rows *sql.Rows) error { return readAttempt(rows, of) }})
		text, args = among("note.read", part)
		l.buf = append(l.buf, stmt{text, args, func(rows *sql.Rows) error { return readNote(rows, of) }})
		text, args = among("stop.read", part)
		return l.ask(func(rows *sql.Rows) error {
			var r ref
			err := rows.Scan(&r.place, &r.n, &r.lap)
			if d := at[r]; d != nil {
				d.CancelRequested = true
			}
			return err
		}, text, args...)
	})
	if err != nil {
		return nil, err
	}
	if err := l.needStates(at, refs); err != nil {
		return nil, err
	}
	for _, r := range l.rows {
		d := at[r.ref]
		d.CancelRequested = d.CancelRequested && r.running()
		if own, any := r.attempt(); any {
			d.Attempts = append(d.Attempts, own)
		}
		last := len(d.Attempts) - 1
		kept := d.Attempts[:0]
		for i, a := range d.Attempts {
			if a.Error != "" || i == last {
				kept = append(kept, a)
			}
		}
		d.Attempts = kept
	}
	return at, nil
}

// needStates reads what tasks need and what has become of it.
func (l *listing) needStates(at map[ref]*store.Detail, refs []ref) error {
	needs, err := l.needsOf(refs)
	if err != nil || len(needs) == 0 {
		return err
	}
	var all []openNeed
	for _, some := range needs {
		all = append(all, some...)
	}
	states, err := l.statesOf(all)
	for _, r := range l.rows {
		for _, n := range needs[ref{r.place, r.n, 0}] {
			at[r.ref].Needs = append(at[r.ref].Needs, store.NeedState{Need: n.Need, State: states[n.Task]})
		}
	}
	return err
}

// attempt returns the attempt of which the task's own row says all.
func (r *row) attempt() (a store.Attempt, any bool) {
	if r.State != store.Completed || r.Worker.IsZero() {
		return a, false
	}
	return store.Attempt{Number: r.Attempt, Worker: r.Worker, StartedAt: r.ClaimedAt, EndedAt: r.FinishedAt, Outcome: store.Completed}, true
}

func readAttempt(rows *sql.Rows, of func(ref) *store.Detail) error {
	var r ref
	var a store.Attempt
	var started, ended int64
	var worker, text, trace, fingerprint []byte
	if err := rows.Scan(&r.place, &r.n, &r.lap, &a.Number, &worker, &started, &ended, &a.Outcome, &text, &trace, &fingerprint); err != nil {
		return err
	}
	copy(a.Worker[:], worker)
	a.StartedAt, a.EndedAt = instant(started), instant(ended)
	a.Error, a.Trace, a.Fingerprint = string(text), string(trace), string(fingerprint)
	d := of(r)
	d.Attempts = append(d.Attempts, a)
	return nil
}

func readNote(rows *sql.Rows, of func(ref) *store.Detail) error {
	var r ref
	var body []byte
	var n noteJSON
	if err := rows.Scan(&r.place, &r.n, &body); err != nil {
		return err
	}
	if err := json.Unmarshal(body, &n); err != nil {
		return err
	}
	d := of(r)
	if n.Progress != nil {
		d.Progress = n.Progress
	}
	if n.Output != nil {
		d.Output = n.Output
	}
	d.Logs = append(d.Logs, n.Logs...)
	return nil
}

// Count implements store.Reader.
func (s *Store) Count(ctx context.Context) (counts []store.Count, err error) {
	err = s.view(ctx, func(w *work) error {
		var sums delta
		if err := w.deltas(&sums); err != nil {
			return err
		}
		if err := w.ask(func(rows *sql.Rows) error {
			var queue []byte
			var state store.State
			var tasks int64
			err := rows.Scan(&queue, &state, &tasks)
			sums.count(string(queue), state, tasks)
			return err
		}, q("count.all")); err != nil {
			return err
		}
		if _, err := w.clock(); err != nil {
			return err
		}
		oldest, err := w.oldest()
		counts = counts[:0]
		for of, n := range sums.counts {
			c := store.Count{Queue: of.queue, State: of.state, Tasks: n}
			if of.state == store.Available {
				c.Oldest = oldest[of.queue]
			}
			counts = append(counts, c)
		}
		return err
	})
	slices.SortFunc(counts, func(a, b store.Count) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.State, b.State))
	})
	return counts, wrap("count", err)
}

// oldest returns how long the first task of a queue's lanes has been due.
func (w *work) oldest() (map[string]time.Duration, error) {
	ages := map[string]time.Duration{}
	err := w.lanes(func(of lane) error {
		return w.ask(func(rows *sql.Rows) error {
			var due int64
			err := rows.Scan(&due)
			ages[of.queue] = max(ages[of.queue], time.Duration(w.now-due)*time.Microsecond)
			return err
		}, q("ready.oldest"), []byte(of.queue), of.priority)
	})
	return ages, err
}

// lanes walks the lanes that have available tasks, an index entry for each.
func (w *work) lanes(each func(of lane) error) error {
	var queue []byte
	var of lane
	found := false
	next := func(text string, args ...any) error {
		found = false
		return w.ask(func(rows *sql.Rows) error { found = true; return rows.Scan(&queue, &of.priority) }, text, args...)
	}
	for queue = []byte{}; ; {
		if err := next(q("ready.first queue"), slices.Clone(queue)); err != nil || !found {
			return err
		}
		for found {
			of.queue = string(queue)
			if err := each(of); err != nil {
				return err
			}
			if of.priority == math.MaxInt16 {
				break
			}
			if err := next(q("ready.lanes"), slices.Clone(queue), of.priority); err != nil {
				return err
			}
		}
	}
}

// Workers implements store.Reader.
func (s *Store) Workers(ctx context.Context) (living []store.Worker, err error) {
	err = s.view(ctx, func(w *work) error {
		living = nil
		at := map[store.ID]int{}
		err := w.ask(func(rows *sql.Rows) error {
			one, err := readWorker(rows)
			at[one.ID] = len(living)
			living = append(living, one)
			return err
		}, q("worker.living"))
		if err != nil {
			return err
		}
		leases, err := w.readLeases(q("lease.all"))
		if err != nil {
			return err
		}
		open, err := w.running(leases)
		for _, l := range leases {
			i, known := at[l.worker]
			for _, r := range refsOf(l.spans) {
				if known && open[r] {
					living[i].Running++
				}
			}
		}
		return err
	})
	return living, wrap("workers", err)
}

func readWorker(rows *sql.Rows) (one store.Worker, err error) {
	var id, host, queues, version []byte
	var started, beat, expires int64
	if err := rows.Scan(&id, &host, &one.PID, &queues, &one.Concurrency, &version, &started, &beat, &expires); err != nil {
		return one, err
	}
	copy(one.ID[:], id)
	one.Host, one.Version = string(host), string(version)
	one.StartedAt, one.BeatAt, one.ExpiresAt = instant(started), instant(beat), instant(expires)
	return one, json.Unmarshal(queues, &one.Queues)
}
