package mysql

import (
	"database/sql"
	"slices"
	"strings"

	"github.com/tuskqueue/tusk/store"
)

// gathered holds changes that wait for the next query of their transaction, so that the changes of many tasks take few
// statements. Deletions go before insertions.
type gathered struct {
	saved  ordered[*row]   // tasks
	listed []*ready        // new rows of tusk_ready
	lasts  map[lane]*ready // the last of them, by lane
	// Rows of tusk_ready from which tasks were taken.
	cut   ordered[*ready]
	waits change[waitingAt] // rows of tusk_waiting
	lines change[*row]      // of tusk_line
	// Tasks that were given a turn, and (in back) tasks that give it back.
	given    []*row
	back     []ref
	named    change[labelRow] // of tusk_label
	toStop   []any            // of tusk_stop: rows to be inserted
	unstop   ordered[ref]     // and to be deleted
	attempts []any            // of tusk_attempt
	// Rows of tusk_note: when tasks were changed, and how.
	changed []any
	needed  ordered[ref] // tasks that other tasks need
	// Tasks to be deleted with their rows in other tables.
	erased ordered[ref]
}

// ordered is a set that keeps the order of insertion.
type ordered[T comparable] struct {
	items []T
	in    map[T]bool
}

func (o *ordered[T]) add(item T) {
	if o.in == nil {
		o.in = map[T]bool{}
	}
	if !o.in[item] {
		o.in[item] = true
		o.items = append(o.items, item)
	}
}

// drop removes an item.
func (o *ordered[T]) drop(item T) {
	if o.in[item] {
		delete(o.in, item)
		o.items = slices.DeleteFunc(o.items, func(i T) bool { return i == item })
	}
}

// take returns the items of a set, and empties it.
func (o *ordered[T]) take() (items []T) {
	items = o.items
	*o = ordered[T]{}
	return items
}

// change holds the keys of rows to delete from a table, and to insert.
type change[T comparable] struct{ gone, come ordered[T] }

func (c *change[T]) remove(key T) {
	c.come.drop(key)
	c.gone.add(key)
}

func (c *change[T]) insert(key T) { c.come.add(key) }

// waitingAt is a row of tusk_waiting.
type waitingAt struct {
	runAt, place int64
	n            int16
}

// labelRow is a row of tusk_label.
type labelRow struct {
	label string
	id    [16]byte
	place int64
	n     int16
}

// ask sends what was gathered, and a query.
func (w *work) ask(each func(*sql.Rows) error, text string, args ...any) error {
	w.pour()
	return w.session.ask(each, text, args...)
}

// flush sends what was gathered.
func (w *work) flush() error {
	w.pour()
	return w.session.flush()
}

// pour turns what was gathered into statements.
func (w *work) pour() {
	g := w.gathered
	w.gathered = gathered{}
	w.pourReady(g.listed, g.cut.take())
	w.pourWaiting(&g.waits)
	w.pourTurns(&g)
	w.pourLabels(&g.named)
	w.pourSaves(g.saved.take())
	w.drop("stops.delete", g.unstop.take())
	w.insertValues("stop.add", "(?, ?, ?, ?)", g.toStop)
	w.insertValues("attempt.insert", "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", g.attempts)
	w.insertValues("note.changed", "(?, ?, 0, ?)", g.changed)
	w.pourNeeded(g.needed.take())
	erased := g.erased.take()
	for _, name := range belongings {
		w.drop(name, erased)
	}
}

// belongings are the statements that delete tasks and what belongs to them.
var belongings = []string{"task.delete", "attempt.delete", "note.delete", "stops.delete", "labels.delete", "need.clear"}

// drop deletes a table's rows of tasks with a statement that joins their places.
func (w *work) drop(name string, refs []ref) {
	for part := range slices.Chunk(refs, maxSpans) {
		var args []any
		for _, r := range part {
			args = append(args, r.place, r.n)
		}
		w.do(withKeys(name, ":tasks", "place, n", len(part)), args...)
	}
}

// insertValues runs a statement that inserts rows, about 3,000 values at a time. A group of parameters is one row.
func (w *work) insertValues(name, group string, values []any) {
	columns := strings.Count(group, "?")
	in := inserts{work: w, name: name, group: group, most: 3000 / columns}
	for row := range slices.Chunk(values, columns) {
		in.add(row...)
	}
	in.put()
}

// withKeys replaces a table in a statement by a list of keys. A condition on all keys could lock the rows between them.
func withKeys(name, table, columns string, n int) string {
	names := strings.Split(columns, ", ")
	first := "select ? as " + strings.Join(names, ", ? as ")
	rest := " union all select ?" + strings.Repeat(", ?", len(names)-1)
	return strings.Replace(q(name), table, first+strings.Repeat(rest, n-1), 1)
}

// pourReady writes new rows of tusk_ready, and what is left of rows from which tasks were taken.
func (w *work) pourReady(listed, cut []*ready) {
	w.insertRows(listed)
	w.rouse(listed)
	var left []*ready
	var gone []*ready
	for _, y := range cut {
		if y.pieces == nil {
			gone = append(gone, y)
		}
		gone = append(gone, y.pieces...)
		y.pieces = y.rest()
		left = append(left, y.pieces...)
	}
	w.byLanes(gone, func(queue string, priority int16, keys []any) {
		w.do(withKeys("ready.drop", ":ready", "at, place, first", len(keys)/3), append(keys, []byte(queue), priority)...)
	})
	w.insertRows(left)
}

// rouse wakes the listeners for tasks of the queues, after the commit.
func (w *work) rouse(listed []*ready) {
	for _, y := range listed {
		w.ring(y.queue)
	}
}

func (w *work) ring(name string) {
	if w.woken == nil {
		w.woken = map[string]bool{}
	}
	w.woken[name] = true
}

// byLanes calls fn for the rows of each queue and priority, some at a time and in order, with the rest of their keys.
func (w *work) byLanes(rows []*ready, fn func(queue string, priority int16, keys []any)) {
	slices.SortFunc(rows, byLane)
	for len(rows) > 0 {
		first, n := rows[0], 0
		var keys []any
		for ; n < len(rows) && n < maxSpans && rows[n].queue == first.queue && rows[n].priority == first.priority; n++ {
			keys = append(keys, rows[n].at, rows[n].place, rows[n].first)
		}
		fn(first.queue, first.priority, keys)
		rows = rows[n:]
	}
}

// insertRows writes rows of tusk_ready. If no time is known yet, they get the time of the statement.
func (w *work) insertRows(all []*ready) {
	at := "?"
	if w.now == 0 {
		at = clock
	}
	var rows []any
	for _, y := range all {
		rows = append(rows, []byte(y.queue), y.priority)
		if w.now != 0 {
			rows = append(rows, y.at)
		}
		rows = append(rows, y.place, y.first, y.next, y.last, y.lap)
	}
	w.insertValues("ready.insert", "(?, ?, "+at+", ?, ?, ?, ?, ?)", rows)
}

// pourNeeded marks tasks as needed by others. If a task is not needed, its end is not checked for that.
func (w *work) pourNeeded(refs []ref) {
	slices.SortFunc(refs, byPlace)
	for part := range slices.Chunk(apart(refs), maxSpans) {
		text, args := among("need.flag", part)
		w.do(text, args...)
	}
}

func (w *work) pourWaiting(c *change[waitingAt]) {
	for part := range slices.Chunk(c.gone.take(), maxSpans) {
		var args []any
		for _, at := range part {
			args = append(args, at.runAt, at.place, at.n)
		}
		w.do(withKeys("waiting.drop", ":waiting", "run_at, place, n", len(part)), args...)
	}
	var rows []any
	for _, at := range c.come.take() {
		rows = append(rows, at.runAt, at.place, at.n)
	}
	w.insertValues("waiting.insert", "(?, ?, ?)", rows)
}

// pourTurns writes which tasks wait for a turn, and which were given one or give it back. If a task was stored with the
// time of the statements, the server copies its row.
func (w *work) pourTurns(g *gathered) {
	var gone []ref
	for _, r := range g.lines.gone.take() {
		gone = append(gone, r.anyLap())
	}
	w.drop("line.drop", gone)
	var fresh []ref
	var rows []any
	for _, r := range g.lines.come.take() {
		if r.since == 0 {
			fresh = append(fresh, r.ref)
			continue
		}
		rows = append(rows, r.place, r.n, r.ID[:], r.lap, []byte(r.Queue), []byte(r.Tenant), []byte(r.Partition),
			r.Priority, r.since)
	}
	for part := range slices.Chunk(spansOf(fresh), maxSpans) {
		text, args := among("line.copy", part)
		w.do(text, args...)
	}
	w.insertValues("line.insert", "(?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
	for part := range slices.Chunk(g.given, maxHeld) {
		w.do(q("held.add"), false, encodeGiven(part))
	}
	for part := range slices.Chunk(spansOf(g.back), maxHeld) {
		w.do(q("held.add"), true, encodeSpans(part))
	}
}

// pourLabels deletes labels by their text, and writes new ones.
func (w *work) pourLabels(c *change[labelRow]) {
	var said ordered[string]
	ids := map[string][]any{}
	for _, l := range c.gone.take() {
		said.add(l.label)
		ids[l.label] = append(ids[l.label], l.id[:])
	}
	for _, label := range said.take() {
		for part := range slices.Chunk(ids[label], 500) {
			w.do(list("label.drop", "?", len(part)), append([]any{[]byte(label), []byte(label)}, part...)...)
		}
	}
	var rows []any
	for _, l := range c.come.take() {
		rows = append(rows, []byte(l.label), l.id[:], l.place, l.n)
	}
	w.insertValues("label.insert", "(?, ?, ?, ?)", rows)
}

// savedColumns are the columns of a task that may change apart from its values, in the order of fields.
var savedColumns = []string{"queue", "priority", "state", "lap", "attempt", "crashes", "reason", "run_at", "claimed_at",
	"finished_at", "failure",
	"fingerprint", "needs", "awaits", "turn"}

// fields holds the values of savedColumns.
type fields [15]any

func (r *row) fields() fields {
	state := r.State
	if state == store.Running {
		state = store.Available // only the leases know better
	}
	return fields{r.Queue, r.Priority, state, r.lap, r.Attempt, r.Crashes, r.Reason, r.RunAt.UnixMicro(),
		microsOrZero(r.ClaimedAt),
		microsOrZero(r.FinishedAt), r.failure, r.fingerprint, r.Open, r.Awaits, r.turn()}
}

// pourSaves writes what has changed in tasks, with one statement for all that change alike.
func (w *work) pourSaves(rows []*row) {
	var kinds ordered[fields]
	alike := map[fields][]ref{}
	for _, r := range rows {
		is, differs := r.fields(), fields{}
		for i := range is {
			if is[i] != r.stored[i] {
				differs[i] = is[i]
			}
		}
		r.stored = is
		kinds.add(differs)
		alike[differs] = append(alike[differs], r.anyLap())
	}
	for _, kind := range kinds.take() {
		set, values := "", []any(nil)
		for i, value := range kind {
			if value != nil {
				set += ", " + savedColumns[i] + " = ?"
				values = append(values, bound(value))
			}
		}
		refs := alike[kind]
		slices.SortFunc(refs, byPlace)
		for part := range slices.Chunk(apart(refs), maxSpans) {
			text, args := among("task.save", part, values...)
			w.do(strings.Replace(text, ":set", set, 1), args...)
		}
	}
}

// bound converts a value of fields to an argument of a statement.
func bound(value any) any {
	switch v := value.(type) {
	case string:
		return textOrNull(v)
	case group:
		return idOrNull(v)
	}
	return value
}
