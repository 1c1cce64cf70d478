package couchbase

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/couchbase/gocb/v2"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// worker is the document of a worker. It lives while g is there: whatever a living worker alone may do is written
// together with a replacement of g, which fails once that has gone.
type worker struct {
	head
	G       *int                `json:"g,omitempty"`
	Info    store.Worker        `json:"i"`
	Started int64               `json:"s0"`
	Beat    int64               `json:"b"`
	Expires int64               `json:"x"`
	Left    bool                `json:"left,omitempty"`
	Combed  bool                `json:"combed,omitempty"` // dead, and the index was asked what it holds
	Seq     int64               `json:"seq,omitempty"`    // of its last beat
	Since   int64               `json:"since,omitempty"`  // what it claimed before is in Names, or it does not know of it
	Names   []string            `json:"names,omitempty"`
	Leases  map[string][]string `json:"l"` // by token, the tasks that it meant to lease: written before they are
	Stops   map[string]string   `json:"s"` // tokens by the tasks that it shall stop

	damaged bool
}

// workerList is the directory of workers.
const workerList = "workers"

func workerKey(id string) string    { return "w|" + id }
func workerRef(id string) ref       { return ref{inMeta, workerKey(id)} }
func leasePath(token string) string { return "l.`" + token + "`" }
func stopPath(id string) string     { return "s.`" + id + "`" }

func newWorker() *worker {
	return &worker{Leases: map[string][]string{}, Stops: map[string]string{}}
}

// eachWorker does something for each worker that is listed; nil: it has no document.
func (s *Store) eachWorker(ctx context.Context, do func(id string, d *doc) error) error {
	ids, err := s.listed(ctx, s.meta, workerList)
	for _, id := range ids {
		d, err := s.read(ctx, workerRef(id))
		if err == nil {
			err = do(id, d)
		}
		if err != nil {
			return err
		}
	}
	return err
}

// meant returns the tasks that a worker meant to lease under a token. An intent whose answer was lost is there twice.
func (w *worker) meant(token string) []string {
	ids := slices.Clone(w.Leases[token])
	slices.Sort(ids)
	return slices.Compact(ids)
}

// standing is how the worker of a document stands.
func (d *doc) standing() rules.Standing {
	switch w := d.worker(); {
	case d.cas == 0:
		return rules.Unheard
	case w.G != nil:
		return rules.Living
	case w.Left:
		return rules.SignedOff
	}
	return rules.Dead
}

// Extend implements store.Leaser. A new worker is entered in the directory before its document is there and after that:
// whoever forgets workers may have found none yet. Both are as durable as tasks are: the leases of a worker that nobody
// knows of would not be rescued before the sweep finds them.
func (s *Store) Extend(ctx context.Context, b store.Beat) (_ []store.Stop, err error) {
	defer says(&err, "extend")
	id := b.Worker.ID.String()
	var w *worker
	var known, counts bool
	var refused error
	err = s.alter(ctx, workerRef(id), func(d *doc) bool {
		w, known = d.worker(), d.cas != 0
		if counts, refused = rules.Beat(&b, d.standing(), w.Seq); refused != nil || !counts {
			return false
		}
		if b.TTL <= 0 {
			for i := range b.Notes {
				if refused = s.note(ctx, &b.Notes[i]); refused != nil {
					return false
				}
			}
			w.G, w.Left = nil, true
			return true
		}
		if w.Beat == w.Started { // the answer to its registration may have been lost
			refused = s.enlist(ctx, s.meta, workerList, id)
		}
		w.extend(&b, s.now(ctx))
		return refused == nil
	})
	if err = cmp.Or(err, refused); err != nil || !counts || b.TTL <= 0 {
		return nil, err
	}
	if !known {
		if err := s.enlist(ctx, s.meta, workerList, id); err != nil {
			return nil, err
		}
	}
	return s.answerBeat(ctx, w, &b)
}

// extend extends a worker's leases, and notes what it says it holds. It is not asked about what it claimed after the
// last beat of which it has seen the answer.
func (w *worker) extend(b *store.Beat, now int64) {
	switch {
	case w.G == nil: // it is new
		g := 1
		w.G, w.Started = &g, now
	case b.Seq == 0:
		w.Since = 0
	case b.Seen > 0 && b.Seen == w.Seq:
		w.Since = w.Beat
	}
	w.Info, w.Seq, w.Beat, w.Expires, w.Names = b.Worker, b.Seq, now, now+b.TTL.Microseconds(), nil
	for _, token := range b.Holds {
		w.Names = append(w.Names, token.String())
	}
}

// answerBeat stores the notes of a beat that counts, and returns what is to be stopped.
func (s *Store) answerBeat(ctx context.Context, w *worker, b *store.Beat) ([]store.Stop, error) {
	errs := make([]error, len(b.Notes))
	_ = each(len(errs), func(i int) error {
		errs[i] = s.note(ctx, &b.Notes[i])
		return nil
	})
	noted := rules.Noted(b.Notes, errs)
	var stops []store.Stop
	for id, token := range w.Stops {
		d, err := s.load(ctx, ref{inTask, id})
		if err != nil {
			return nil, err
		}
		if d != nil && d.task().holds(tokenOf(token)) && d.task().Stop != nil {
			stops = append(stops, store.Stop{ID: idOf(id), Lease: tokenOf(token)})
			continue
		}
		err = s.mutate(ctx, s.meta, workerKey(b.Worker.ID.String()), 0, gocb.RemoveSpec(stopPath(id), nil))
		if errors.Is(err, gocb.ErrDocumentNotFound) { // it was declared dead and forgotten since
			return nil, store.ErrWorkerDead
		}
		if err != nil && !errors.Is(err, gocb.ErrPathNotFound) {
			return nil, err
		}
	}
	return stops, noted
}

// note stores a note on a running task whose lease is open.
func (s *Store) note(ctx context.Context, n *store.Note) error {
	return s.alter(ctx, taskRef(n.ID), func(d *doc) bool {
		if !d.task().holds(n.Lease) {
			return false
		}
		d.task().write(n)
		return true
	})
}

// stop writes into the worker's document that it shall stop a task.
func (s *Store) stop(ctx context.Context, t *task) error {
	if len(t.Run) == 0 {
		return nil
	}
	err := s.mutate(ctx, s.meta, workerKey(t.Run[0].Worker), 0, gocb.UpsertSpec(stopPath(t.ID), t.Run[0].Token, nil))
	if absent(err) {
		return nil
	}
	return err
}

// intend names in a worker's document what it is about to lease, and takes out tokens under which it holds nothing any
// more.
func (s *Store) intend(ctx context.Context, id string, name gocb.MutateInSpec) error {
	specs := []gocb.MutateInSpec{replaceG, name}
	with := specs
	for _, old := range s.lent.closed(id, 12) {
		with = append(with, gocb.RemoveSpec(leasePath(old), nil))
	}
	err := s.mutate(ctx, s.meta, workerKey(id), 0, with...)
	if errors.Is(err, gocb.ErrPathNotFound) && len(with) > len(specs) { // g, or a token that has gone already
		err = s.mutate(ctx, s.meta, workerKey(id), 0, specs...)
	}
	if absent(err) {
		return store.ErrWorkerDead
	}
	return err
}

// meant returns the tasks that a worker meant to lease under a token.
func (s *Store) meant(ctx context.Context, id, token string) ([]string, error) {
	d, err := s.read(ctx, workerRef(id))
	switch {
	case err != nil:
		return nil, err
	case d == nil || d.worker().G == nil:
		return nil, store.ErrWorkerDead
	}
	return d.worker().meant(token), nil
}

// lent is what this handle has claimed and not finished yet: a task's document is known then, and need not be read
// again to end its attempt.
type lent struct {
	mu    sync.Mutex
	docs  map[lease]map[string]*doc // by lease and task
	n     int                       // of these
	in    map[ref]*doc              // the sheets that they lie in, as they were last read or written
	ended map[string][]string       // by worker, tokens under which none is open
}

// mostLent bounds what a handle keeps of tasks that it claimed and never heard of again.
const mostLent = 20_000

// lock locks what is lent, and begins anew if there is too much.
func (l *lent) lock() {
	l.mu.Lock()
	if l.docs == nil || l.n > mostLent {
		l.docs, l.n, l.in, l.ended = map[lease]map[string]*doc{}, 0, map[ref]*doc{}, map[string][]string{}
	}
}

func (l *lent) put(d *doc) {
	l.lay(d.sheet)
	l.lock()
	defer l.mu.Unlock()
	by := d.task().Run[0]
	if l.docs[by] == nil {
		l.docs[by] = map[string]*doc{}
	}
	l.docs[by][d.ID] = d
	l.n++
}

// lay remembers a sheet as it was read or written, if it is the latest of it, and forgets one of which nothing runs.
func (l *lent) lay(d *doc) {
	l.lock()
	defer l.mu.Unlock()
	if d == nil || !isSheet(d.ref) || d.cas != passed && l.in[d.ref] != nil && l.in[d.ref].cas > d.cas {
		return
	}
	if d.sheetOf().Lent == 0 || d.cas == passed {
		delete(l.in, d.ref)
		return
	}
	l.in[d.ref] = &doc{ref: d.ref, cas: d.cas, raw: d.raw}
}

// sheet returns a sheet as it was last read or written.
func (l *lent) sheet(r ref) map[ref]*doc {
	l.mu.Lock()
	is := l.in[r]
	l.mu.Unlock()
	d := blank(r)
	if is == nil || decode(r.ID, is.raw, d.body) != nil {
		return nil
	}
	d.cas, d.raw = is.cas, is.raw
	return map[ref]*doc{r: d}
}

// take returns the document of a task whose attempt ends; nil: it is not known.
func (l *lent) take(task *store.Task) *doc {
	l.mu.Lock()
	defer l.mu.Unlock()
	by := lease{task.Worker.String(), task.Lease.String()}
	d := l.docs[by][task.ID.String()]
	if d == nil {
		return nil
	}
	l.n--
	delete(l.docs[by], d.ID)
	if len(l.docs[by]) == 0 {
		delete(l.docs, by)
		l.ended[by.Worker] = append(l.ended[by.Worker], by.Token)
	}
	return d
}

// forgo has a token go from a worker's document under which it got nothing.
func (l *lent) forgo(worker, token string) {
	l.lock()
	defer l.mu.Unlock()
	l.ended[worker] = append(l.ended[worker], token)
}

// closed returns up to n tokens under which a worker holds nothing any more, and forgets them.
func (l *lent) closed(worker string, n int) []string {
	l.lock()
	defer l.mu.Unlock()
	tokens := l.ended[worker]
	n = min(n, len(tokens))
	if tokens = tokens[:n:n]; n > 0 {
		l.ended[worker] = l.ended[worker][n:]
	}
	return tokens
}
