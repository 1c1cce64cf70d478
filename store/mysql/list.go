package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"

	"github.com/tuskqueue/tusk/store"
)

// List implements store.Reader. It uses the index that leaves the fewest rows to read: ids, then properties that few
// tasks have, then queue and kind.
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

// find collects the rows of a page. Tables do not distinguish running tasks from available ones, so the rows that were
// read may be in other states than the filter's; then find reads more.
func (l *listing) find() error {
	for {
		more := &listing{work: l.work, f: l.f}
		if err := more.read(); err != nil {
			return err
		}
		more.newest()
		if err := l.tellRunning(more.rows); err != nil {
			return err
		}
		for _, r := range more.rows {
			if l.means(r) {
				l.rows = append(l.rows, r)
			}
		}
		n := len(more.rows)
		if n < l.f.Limit || len(l.rows) >= l.f.Limit {
			return nil
		}
		page := *l.f
		page.Before = more.rows[n-1].ID
		l.f = &page
	}
}

// means reports whether a task is in one of the filter's states.
func (l *listing) means(r *row) bool {
	state := r.State
	if r.running() {
		state = store.Running
	}
	return len(l.f.States) == 0 || slices.Contains(l.f.States, state)
}

// newest keeps only the newest rows of a page, each once.
func (l *listing) newest() {
	slices.SortFunc(l.rows, func(a, b *row) int { return cmp.Or(slices.Compare(b.ID[:], a.ID[:]), byPlace(a.ref, b.ref)) })
	l.rows = slices.CompactFunc(l.rows, func(a, b *row) bool { return a.ref == b.ref })
	l.rows = l.rows[:min(len(l.rows), l.f.Limit)]
}

// read reads tasks that may match the filter.
func (l *listing) read() error {
	f := l.f
	label := labelOf(f)
	switch {
	case len(f.IDs) > 0:
		return inParts(f.IDs, 500, func(ids []store.ID) error {
			return l.along("force index (tusk_task_id)", "t.id in ("+marks(len(ids))+")", idArgs(ids)...)
		})
	case label == "" && len(f.States) > 1 && !slices.Contains(f.States, store.Completed):
		return l.byState()
	case slices.Equal(f.States, []store.State{store.Running}):
		return l.running()
	case slices.Contains(f.States, store.Running) && !slices.Contains(f.States, store.Available):
		return l.byState()
	case label == stateLabel(store.Pending):
		return errors.Join(l.labelled(label), l.listed("list.line"))
	case label != "":
		return l.labelled(label)
	case slices.Equal(f.States, []store.State{store.Available}):
		return l.listed("list.ready")
	}
	return l.anywhere()
}

// anywhere reads along an index of all tasks.
func (l *listing) anywhere() error {
	if len(l.f.Queues) > 0 || len(l.f.Kinds) > 0 {
		return l.byKind()
	}
	return l.along("force index (tusk_task_id)", "true")
}

// labelOf returns a label that all tasks of a filter have, or an empty string if there is none.
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
	case len(f.Tenants) == 1 && f.Tenants[0] != "":
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
	among("coalesce(t.tenant, '')", f.Tenants)
	if len(f.States) > 0 {
		add("t.state in (" + marks(len(f.States)) + ")")
		for _, state := range f.States {
			if state == store.Running {
				state = store.Available // as its row says
			}
			args = append(args, state)
		}
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

// text returns a statement that lists tasks.
func (l *listing) text(name string) string {
	if l.f.NoArgs {
		return strings.Replace(q(name), "t.args", "null", 1)
	}
	return q(name)
}

// along lists tasks along an index, with one more condition.
func (l *listing) along(index, condition string, args ...any) error {
	filter, more := l.filter()
	text := strings.Replace(strings.Replace(l.text("list.tasks"), ":index", index, 1), ":filter",
		condition+" and "+filter, 1)
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
	text := strings.Replace(l.text("list.labelled"), ":filter", condition+" and "+filter, 1)
	return l.ask(l.collect, text, append(append(args, more...), l.f.Limit)...)
}

func (l *listing) collect(rows *sql.Rows) error {
	r, err := readRow(rows)
	l.rows = append(l.rows, r)
	return err
}

// byState lists the tasks of each state separately, so that unfinished tasks are found without reading finished ones.
func (l *listing) byState() error {
	for _, state := range slices.Compact(slices.Sorted(slices.Values(l.f.States))) {
		f := *l.f
		f.States = []store.State{state}
		of := &listing{work: l.work, f: &f}
		if err := of.read(); err != nil {
			return err
		}
		l.rows = append(l.rows, of.rows...)
	}
	return nil
}

// running lists the tasks that the leases hold.
func (l *listing) running() error {
	leases, err := l.readLeases(q("lease.all"))
	if err != nil {
		return err
	}
	var spans []span
	for _, lease := range leases {
		spans = append(spans, lease.spans...)
	}
	return l.within(spans)
}

// within lists tasks of spans.
func (l *listing) within(spans []span) error {
	return inParts(spans, maxSpans, func(part []span) error {
		condition, args := where(part)
		condition = strings.ReplaceAll(strings.ReplaceAll(condition, "place", "t.place"), " n ", " t.n ")
		return l.along("force index (primary)", condition, args...)
	})
}

// fewListed is the maximum number of spans of tasks that are searched separately. If there are more, the newest tasks
// probably include some of them.
const fewListed = 2000

// listed lists the tasks of spans that a statement returns: available tasks, or tasks that wait for their turn.
func (l *listing) listed(name string) error {
	spans, parts, args := []span(nil), []string(nil), []any(nil)
	for _, queue := range l.f.Queues { // MySQL may read all queues to find a few
		parts, args = append(parts, strings.Replace(q(name), ":queues", "where queue = ?", 1)),
			append(args, []byte(queue), fewListed+1)
	}
	if len(parts) == 0 {
		parts, args = []string{strings.Replace(q(name), ":queues", "", 1)}, []any{fewListed + 1}
	}
	err := l.ask(func(rows *sql.Rows) error {
		var of span
		err := rows.Scan(&of.place, &of.first, &of.last, &of.lap)
		spans = append(spans, of)
		return err
	}, "("+strings.Join(parts, ") union all (")+")", args...)
	switch {
	case err != nil:
		return err
	case len(spans) > fewListed:
		return l.anywhere()
	}
	return l.within(spansOf(refsOf(spans)))
}

// maxKinds is how many kinds are listed separately and then merged.
const maxKinds = 100

// byKind lists the tasks of each matching kind separately, and merges them.
func (l *listing) byKind() error {
	type named struct{ queue, kind string }
	var kinds []named
	err := l.kinds(func(queue, kind string) bool {
		if (len(l.f.Queues) == 0 || slices.Contains(l.f.Queues, queue)) &&
			(len(l.f.Kinds) == 0 || slices.Contains(l.f.Kinds, kind)) {
			kinds = append(kinds, named{queue, kind})
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
		if err := l.along("force index (tusk_task_kind)", "t.queue = ? and t.kind = ?", []byte(of.queue),
			[]byte(of.kind)); err != nil {
			return err
		}
	}
	return nil
}

// kinds walks the existing queues and kinds, with one index lookup for each.
func (w *work) kinds(each func(queue, kind string) bool) error {
	next := func(text string, args ...any) (name []byte, err error) { // nil if none follows
		err = w.ask(func(rows *sql.Rows) error { return rows.Scan(&name) }, text, args...)
		return name, err
	}
	for queue := []byte{}; ; {
		var err error
		if queue, err = next(q("queue.next"), queue); err != nil || queue == nil {
			return err
		}
		for kind := []byte{}; ; {
			if kind, err = next(q("kind.next"), queue, kind); err != nil {
				return err
			}
			if kind == nil {
				break
			}
			if !each(string(queue), string(kind)) {
				return nil
			}
		}
	}
}

// tasks turns the newest rows into the result of List.
func (l *listing) tasks() ([]store.Task, error) {
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
