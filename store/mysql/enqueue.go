package mysql

import (
	"context"
	"fmt"

	"github.com/tuskqueue/tusk/store"
)

// Enqueue implements store.Enqueuer.
func (s *Store) Enqueue(ctx context.Context, tasks []store.NewTask) (results []store.Enqueued, err error) {
	if len(tasks) == 0 {
		return nil, nil
	}
	err = s.write(ctx, func(w *work) error {
		results, err = w.enqueue(tasks)
		return err
	})
	if err != nil {
		return nil, wrap("enqueue", err)
	}
	return results, nil
}

// enqueue takes all locks that tasks need, and stores them. Plain ones need none,
// and not even the time.
func (w *work) enqueue(tasks []store.NewTask) (results []store.Enqueued, err error) {
	if len(tasks) == 0 {
		return nil, nil
	}
	plain := true
	for i := range tasks {
		n := &tasks[i]
		plain = plain && n.Key == "" && n.RunAt.IsZero() && n.Delay <= 0 && n.ExpiresIn <= 0 && len(n.Needs) == 0 && !n.Turn
	}
	if !plain {
		if err := w.lock(&locks{tasks: tasks}); err != nil {
			return nil, err
		}
		if _, err := w.clock(); err != nil { // after the locks: nothing that was seen is later
			return nil, err
		}
	}
	if results, err = w.add(tasks); err != nil {
		return nil, err
	}
	w.saveKeys(w.keys)
	w.flag()
	return results, nil
}

// add stores tasks in order, in a transaction that holds their locks.
func (w *work) add(tasks []store.NewTask) ([]store.Enqueued, error) {
	results := make([]store.Enqueued, len(tasks))
	if w.rows == nil {
		w.rows, w.ids = map[ref]*row{}, map[store.ID]*row{}
	}
	b := &batch{w: w}
	for i := range tasks {
		n := &tasks[i]
		if n.Key != "" {
			b.write() // what came before is claimed before
			b = &batch{w: w}
			var err error
			if results[i], err = w.enqueueKeyed(n); err != nil {
				return nil, err
			}
			continue
		}
		b.add(n)
		results[i] = store.Enqueued{ID: n.ID, Result: store.Added}
	}
	b.write()
	return results, nil
}

// batch gathers new tasks of a call and gives them their places: those of one
// lane follow each other, so that a row of tusk_ready can stand for many.
type batch struct {
	w     *work
	lanes []lane
	index map[lane]int // in rows
	rows  [][]*row
}

type lane struct {
	queue    string
	priority int16
	state    store.State
}

// add gathers a task. What it needs is looked at now, so that it may be a task
// that was added before.
func (b *batch) add(n *store.NewTask) {
	w := b.w
	r := newRow(n, w.now)
	r.State = store.Available
	if w.now != 0 {
		w.need(r, n.Needs)
		switch {
		case r.needs > 0:
			r.State = store.Pending
		case r.RunAt.UnixMicro() > w.now:
			r.State = store.Scheduled
		case n.Turn:
			r.State = store.Pending
		}
		w.ids[r.ID] = r
	}
	at := lane{n.Queue, n.Priority, r.State}
	if b.index == nil {
		b.index = map[lane]int{}
	}
	i, known := b.index[at]
	if !known {
		i = len(b.rows)
		b.index[at] = i
		b.lanes, b.rows = append(b.lanes, at), append(b.rows, nil)
	}
	b.rows[i] = append(b.rows[i], r)
}

// write stores the tasks.
func (b *batch) write() {
	w := b.w
	if len(b.rows) == 0 {
		return
	}
	at := w.now + w.covered
	w.covered++
	var all []*row
	place, n := int64(0), int16(maxPlace)
	var spans []*ready
	for i, of := range b.lanes {
		var last *ready
		for _, r := range b.rows[i] {
			if n == maxPlace {
				place, n, last = w.store.places.next(), 0, nil
			}
			r.place, r.n = place, n
			n++
			if of.state != store.Available {
				continue
			}
			if last == nil || last.last-last.first+1 == maxSpan {
				last = &ready{queue: of.queue, priority: of.priority, at: at, place: place, first: r.n, next: r.n, last: r.n}
				spans = append(spans, last)
			}
			last.last = r.n
		}
		all = append(all, b.rows[i]...)
		w.sums.count(of.queue, of.state, int64(len(b.rows[i])))
	}
	w.insert(all)
	w.insertReady(spans)
	w.insertBlocked(all)
	w.addLabels(all...)
}

// insertBlocked lists new tasks that may not run yet where they wait.
func (w *work) insertBlocked(all []*row) {
	var waiting, queuing []*row
	for _, r := range all {
		switch {
		case r.State == store.Scheduled:
			waiting = append(waiting, r)
		case r.State == store.Pending && r.needs == 0 && !r.awaits:
			queuing = append(queuing, r)
		}
		w.insertNeeds(r)
		w.know(r)
	}
	w.queueUp(queuing...)
	w.addWaiting(waiting...)
}

// insert stores new rows.
func (w *work) insert(all []*row) {
	instants := "?, ?"
	if w.now == 0 {
		instants = clock + ", " + clock
	}
	group := "(?, ?, ?, ?, ?, ?, ?, 0, 0, 0, " + instants + ", ?, 0, 0, '', ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?)"
	var args []any
	rows, size := 0, 0
	put := func() {
		if rows > 0 {
			w.do(list("task.insert", group, rows), args...)
		}
		args, rows, size = nil, 0, 0
	}
	for _, r := range all {
		args = append(args, r.place, r.n, r.ID[:], []byte(r.Queue), []byte(r.Kind), r.Priority, r.State)
		if w.now != 0 {
			args = append(args, r.EnqueuedAt.UnixMicro(), r.RunAt.UnixMicro())
		}
		args = append(args, microsOrNull(r.ExpiresAt), textOrNull(r.Tenant), textOrNull(r.Key), tagsOrNull(r.Tags), bytesOrNull(r.Settings),
			idOrNull(r.Workflow), textOrNull(r.Partition), r.needs, r.awaits, r.turn, bytesOrNull(r.Args))
		r.stored = r.fields()
		rows++
		if size += len(r.Args) + len(r.Settings); rows == 500 || size > maxPacket/2 {
			put()
		}
	}
	put()
}

// insertReady lists new tasks, at the time of the statement when no other is
// known.
func (w *work) insertReady(spans []*ready) {
	if w.now != 0 || len(spans) == 0 {
		w.addReady(spans...)
		return
	}
	var args []any
	for _, y := range spans {
		args = append(args, []byte(y.queue), y.priority, y.place, y.first, y.next, y.last, y.lap)
	}
	w.rouse(spans)
	w.do(list("ready.insert", "(?, ?, "+clock+", ?, ?, ?, ?, ?)", len(spans)), args...)
}

// enqueueKeyed stores one task with a key.
func (w *work) enqueueKeyed(n *store.NewTask) (store.Enqueued, error) {
	is := w.keys[name{n.Queue, n.Tenant, n.Key}]
	if is == nil {
		return store.Enqueued{}, fmt.Errorf("%w: key %q", errAgain, n.Key)
	}
	if n.OnConflict == store.Rerun && !is.learn(n.SourceTime, w.now) {
		w.echoes = true
		return store.Enqueued{ID: is.standsFor(), Result: store.Stale}, nil
	}
	if is.task.IsZero() && is.over && n.OnConflict == store.Once {
		w.echoes = true
		return store.Enqueued{ID: is.ended, Result: store.Skipped}, nil
	}
	if is.task.IsZero() {
		is.holds(w.insertOne(n, false))
		return store.Enqueued{ID: n.ID, Result: store.Added}, nil
	}
	holder := w.rows[is.at]
	switch {
	case n.OnConflict == store.Skip || n.OnConflict == store.Once:
		w.echoes = true
		return store.Enqueued{ID: is.task, Result: store.Skipped}, nil
	case holder == nil || holder.ID != is.task:
		return store.Enqueued{}, fmt.Errorf("%w: key %q", errAgain, n.Key)
	case n.OnConflict == store.Rerun && holder.running():
		w.await(is, n)
		return store.Enqueued{ID: is.awaiting, Result: store.Awaiting}, nil
	case holder.running():
		w.echoes = true
		return store.Enqueued{ID: is.task, Result: store.Skipped}, nil
	}
	w.replace(holder, n)
	return store.Enqueued{ID: is.task, Result: store.Replaced}, nil
}

// insertOne stores a task by itself, as one that awaits another's end or as one
// of its own.
func (w *work) insertOne(n *store.NewTask, awaits bool) *row {
	r := newRow(n, w.now)
	r.place, r.awaits = w.store.places.next(), awaits
	w.need(r, n.Needs)
	if awaits {
		w.put(r, store.Pending)
	} else {
		w.putDue(r, store.Scheduled)
	}
	w.insert([]*row{r})
	w.insertNeeds(r)
	w.addLabels(r)
	w.know(r)
	return r
}

// await remembers what shall run when the running holder of a key has ended.
func (w *work) await(is *identity, n *store.NewTask) {
	if is.awaiting.IsZero() {
		is.awaits(w.insertOne(n, true))
		return
	}
	r := w.rows[is.awaitingAt]
	r.become(n, w.now)
	w.rewrite(r)
}

// replace gives a task that is not running new values. It keeps its place in
// its lane when it can.
func (w *work) replace(r *row, n *store.NewTask) {
	due := runAt(n.RunAt, n.Delay, w.now)
	if r.State == store.Available && r.Priority == n.Priority && due <= w.now {
		was := r.RunAt
		r.become(n, w.now)
		r.RunAt = was
	} else {
		w.take(r)
		r.become(n, w.now)
		r.lap++
		w.putDue(r, store.Scheduled)
	}
	w.rewrite(r)
}

// rewrite stores the values and labels of a task that may have new ones.
func (w *work) rewrite(r *row) {
	w.save(r)
	w.do(q("task.become"), []byte(r.Kind), microsOrNull(r.ExpiresAt), tagsOrNull(r.Tags), bytesOrNull(r.Settings), bytesOrNull(r.Args), r.place, r.n)
	w.do(q("label.clear"), r.place, r.n)
	w.addLabels(r)
}
