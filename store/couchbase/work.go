package couchbase

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/internal/bell"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

var errConflict = errors.New("a document has changed")

// work runs verbs, which are methods of rules.Batch, on documents and writes what they decide. It implements
// rules.Source.
type work struct {
	s    *Store
	ctx  context.Context
	have map[ref]*doc // documents that the first try need not read
	full map[ref]bool // blocks that have a sheet of another call

	// For one try:
	root  *doc // the document whose write decides; nil to choose one
	torn  bool // the documents do not fit together, so the try is repeated
	batch *rules.Batch
	docs  map[ref]*doc // nil values are documents that do not exist
	order []*doc
	edges []rules.Edge // open needs on ended tasks, for Tell

	// The results:
	ready []*task  // tasks to append to lanes, in order
	rings []string // bells that wake the leader
	told  []*doc   // documents whose children must be told
}

// do runs verbs on what is stored and writes the results. It repeats that until no other process has changed the
// documents meanwhile.
func (s *Store) do(ctx context.Context, w *work, verbs func(b *rules.Batch) error) error {
	w.s, w.ctx, w.full = s, ctx, map[ref]bool{}
	return until(ctx, func(int) (bool, error) {
		w.docs, w.order, w.ready, w.rings, w.told, w.torn = map[ref]*doc{}, nil, nil, nil, nil, false
		w.batch = rules.New(instant(s.now(ctx)), w)
		w.batch.Behind = time.Duration(s.clock.behind.Load()) * time.Microsecond
		if err := verbs(w.batch); err != nil {
			return false, err
		}
		w.gather()
		done, err := w.commit()
		if done || err != nil {
			for _, name := range w.rings {
				s.bell.Ring(name)
			}
			return done, err
		}
		w.have = nil
		s.conflicts.Add(1)
		return false, nil
	})
}

// doEach runs verbs for 0 to n-1 concurrently, each as its own work. It then does what follows from them, and returns
// the works that did something.
func (s *Store) doEach(ctx context.Context, n int, verbs func(i int, w *work) (did bool, err error)) ([]*work, error) {
	return s.doInRounds(ctx, roundsOf(make([]*doc, n)), verbs) // a single round
}

// doInRounds does the same in rounds, one after another. Later rounds see the tasks that earlier rounds have ended. The
// children of these tasks are told at the end.
func (s *Store) doInRounds(
	ctx context.Context, rounds [][]int, verbs func(i int, w *work) (did bool, err error),
) (done []*work, err error) {
	var all []*work
	ended := map[ref]*doc{}
	for _, round := range rounds {
		works, did := make([]*work, len(round)), make([]bool, len(round))
		err = each(len(round), func(i int) error {
			w := &work{have: ended}
			works[i] = w
			err := s.do(ctx, w, func(*rules.Batch) (err error) {
				did[i], err = verbs(round[i], w)
				return err
			})
			if err != nil { // the others go on; if it was decided, the sweep completes it
				works[i], did[i] = &work{}, false
			}
			return s.passing(err)
		})
		all = append(all, works...)
		for i, w := range works {
			if did[i] {
				done = append(done, w)
			}
			for _, d := range w.told {
				ended[d.ref] = &doc{ref: d.ref, body: d.body, cas: d.cas, raw: d.raw}
			}
		}
		if err != nil {
			break
		}
	}
	return done, cmp.Or(err, s.finishUp(ctx, all...))
}

// load returns a document for this try, or nil if it does not exist.
func (w *work) load(r ref) (*doc, error) {
	if d, known := w.docs[r]; known {
		return d, nil
	}
	d, err := w.find(r)
	if err != nil {
		return nil, err
	}
	w.know(r, d)
	return d, nil
}

func (w *work) find(r ref) (*doc, error) {
	if d := w.have[r]; d != nil {
		return d, nil
	}
	if r.C == inTask && !isSheet(r) {
		at, _ := block(r.ID)
		if in := w.docs[at]; in != nil {
			if d := in.of(r.ID); d != nil {
				return d, nil
			}
		}
	}
	return w.s.load(w.ctx, r)
}

// know adds a document to this try; d is nil if the document does not exist.
func (w *work) know(r ref, d *doc) {
	if _, known := w.docs[r]; known {
		return
	}
	// All tasks of a sheet must come from one read of the sheet.
	if d != nil && d.sheet != nil {
		w.know(d.sheet.ref, d.sheet)
		in := w.docs[d.sheet.ref]
		if in == nil || in.cas != d.sheet.cas {
			w.torn = true
		} else {
			d.sheet = in
		}
	}
	w.docs[r] = d
	if d == nil {
		return
	}
	w.order = append(w.order, d)
	if t, is := d.body.(*task); is { // the time of a task never goes back
		if last := instant(max(t.Since, t.Written)); last.After(w.batch.Now) {
			w.batch.Now = last
		}
	}
}

// Read implements rules.Source. It returns no children of ended tasks: they are told afterwards (see tell).
func (w *work) Read(want *rules.Want) (*rules.Found, error) {
	if err := w.loadAll(want); err != nil {
		return nil, err
	}
	found := &rules.Found{}
	for _, name := range want.Keys {
		if d := w.docs[keyRef(name)]; d != nil {
			found.Keys = append(found.Keys, *d.key().known(name))
		}
	}
	for _, id := range want.Tasks {
		if d := w.docs[taskRef(id)]; d != nil {
			found.Tasks = append(found.Tasks, d.task().row())
		}
	}
	for _, id := range want.Needs {
		if d := w.docs[taskRef(id)]; d != nil {
			for _, n := range d.task().openNeeds() {
				found.Needs = append(found.Needs, rules.OwnNeed{Child: id, OpenNeed: n})
			}
		}
	}
	for _, id := range want.Children {
		for _, e := range w.edges {
			if e.Task == id {
				found.Children = append(found.Children, e)
			}
		}
	}
	return found, nil
}

// loadAll loads what the rules want, concurrently. It rebuilds damaged keys.
func (w *work) loadAll(want *rules.Want) error {
	var refs []ref
	for _, name := range want.Keys {
		refs = append(refs, keyRef(name))
	}
	for _, id := range slices.Concat(want.Tasks, want.Needs) {
		refs = append(refs, taskRef(id))
	}
	docs, err := collect(len(refs), func(i int) (*doc, error) {
		if _, known := w.docs[refs[i]]; known {
			return nil, nil
		}
		d, err := w.find(refs[i])
		if i < len(want.Keys) && errors.Is(err, errDamaged) {
			return w.s.remake(w.ctx, want.Keys[i])
		}
		return d, err
	})
	if err != nil {
		return err
	}
	for i, r := range refs {
		w.know(r, docs[i])
	}
	return nil
}

// of returns the document of a task that the rules have read.
func (w *work) of(id store.ID) *doc {
	d, _ := w.load(taskRef(id))
	return d
}

// gather applies the batch to the documents.
func (w *work) gather() {
	b, now := w.batch, micros(w.batch.Now)
	for _, c := range b.Changes() {
		w.change(c, now)
		if c.Before == nil || c.Before.Key == "" {
			continue
		}
		// The decision may rely on the key, which must then be unchanged. And a call that found the task running by its
		// key must fail once the attempt has ended.
		if d := w.docs[keyRef(rules.KeyName{Queue: c.Before.Queue, Tenant: c.Before.Tenant, Key: c.Before.Key})]; d != nil {
			d.dirty = true
		}
	}
	for _, e := range b.Ends {
		w.of(e.Task.ID).task().end(e)
	}
	for _, n := range b.Needs {
		w.need(n)
	}
	for _, m := range b.Met {
		w.meet(m)
	}
	for _, id := range b.Doubts {
		if d := w.of(id); d != nil && d.task().State == "p" {
			d.task().Doom, d.dirty = now, true
		}
	}
	keys, _ := b.Keys()
	for i := range keys {
		r := keyRef(keys[i].KeyName)
		d := w.docs[r]
		if d == nil {
			d = w.add(blank(r))
		}
		d.key().set(&keys[i])
		d.dirty = true
	}
	w.settle()
	w.bundle()
	w.results()
}

func (w *work) add(d *doc) *doc {
	w.docs[d.ref] = d
	w.order = append(w.order, d)
	d.dirty = true
	return d
}

func (w *work) change(c rules.Change, now int64) {
	if c.Before == nil {
		d := w.add(&doc{ref: taskRef(c.After.ID), body: newTask(c.After, now)})
		d.place = c.After.Place
		return
	}
	d := w.of(c.Before.ID)
	t := d.task()
	d.dirty = true
	if c.After == nil {
		t.bury(now)
	} else {
		t.set(c.After, now)
		d.place = c.After.Place
	}
	ended := c.After != nil && c.After.State.Finished() && !c.Before.State.Finished()
	if len(t.Kids) > 0 && (ended || c.After == nil) || t.Back && ended {
		t.Tell = t.State
	}
}

// need stores the needs of a task, and the task as a child of each.
func (w *work) need(n *rules.NewNeeds) {
	d := w.of(n.Child)
	if d == nil {
		return
	}
	t := d.task()
	t.Needs, d.dirty = nil, true
	for _, own := range n.Needs {
		t.Needs = append(t.Needs, need{own.Task, own.OnFailure, own.Open})
		if !own.Open {
			continue
		}
		if parent := w.of(own.Task); parent != nil && !slices.Contains(parent.task().Kids, d.ID) {
			parent.task().Kids = append(parent.task().Kids, d.ID)
			parent.dirty = true
		}
	}
}

func (w *work) meet(m rules.Met) {
	d := w.of(m.Child)
	if d == nil {
		return
	}
	d.dirty = true
	for i := range d.task().Needs {
		n := &d.task().Needs[i]
		n.Open = n.Open && n.Task != m.Parent
	}
}

// results collects what follows from the try if it succeeds.
func (w *work) results() {
	var placed []*doc
	for _, d := range w.order {
		if !d.dirty {
			continue
		}
		if d.header().Tell != "" {
			w.told = append(w.told, d)
		}
		if d.place == 0 {
			continue
		}
		if isSheet(d.ref) {
			placed = append(placed, d)
		} else if name := bell.For(d.task().row(), w.batch.Now); bell.Leads(name) && !slices.Contains(w.rings, name) {
			w.rings = append(w.rings, name)
		} else if d.ready() != nil {
			placed = append(placed, d)
		}
	}
	slices.SortFunc(placed, func(a, b *doc) int { return cmp.Compare(a.place, b.place) })
	for _, d := range placed {
		w.ready = append(w.ready, d.ready())
	}
}

// alter changes one document without the rules, and retries until nobody else has changed it meanwhile. It creates a
// document that does not exist. It writes nothing if change returns false.
func (s *Store) alter(ctx context.Context, r ref, change func(d *doc) bool) error {
	return s.alterAs(ctx, r, s.load, change)
}

// alterAs is alter for a document that is read in a given way.
func (s *Store) alterAs(ctx context.Context, r ref, read reader, change func(d *doc) bool) error {
	return until(ctx, func(try int) (bool, error) {
		if try > 0 {
			s.conflicts.Add(1)
		}
		d, err := read(ctx, r)
		if err != nil {
			return false, err
		}
		if d == nil {
			d = blank(r)
		}
		if !change(d) {
			return true, nil
		}
		return s.write(ctx, d)
	})
}
