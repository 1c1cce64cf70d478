package couchbase

import (
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
}

// workerList is the directory of workers.
const workerList = "workers"

func workerKey(id string) string    { return "w|" + id }
func leasePath(token string) string { return "l.`" + token + "`" }
func stopPath(id string) string     { return "s.`" + id + "`" }

// readWorker returns a worker's document; nil: there is none.
func (s *Store) readWorker(ctx context.Context, id string) (*worker, gocb.Cas, error) {
	w, cas, err := fetch[worker](ctx, s, s.meta, workerKey(id))
	if w == nil || err != nil {
		return nil, cas, err
	}
	for token, ids := range w.Leases { // an intent whose answer was lost is there twice
		slices.Sort(ids)
		w.Leases[token] = slices.Compact(ids)
	}
	return w, cas, nil
}

// eachWorker does something for each worker that is listed, as it is; nil: it has no document.
func (s *Store) eachWorker(ctx context.Context, do func(id string, w *worker, cas gocb.Cas) error) error {
	ids, err := s.listed(ctx, s.meta, workerList)
	for _, id := range ids {
		w, cas, err := s.readWorker(ctx, id)
		if err == nil {
			err = do(id, w, cas)
		}
		if s.passing(err) != nil {
			return err
		}
	}
	return err
}

// standing is how a worker stands, and its last beat.
func (w *worker) standing() (is rules.Standing, last int64) {
	switch {
	case w == nil:
		return rules.Unheard, 0
	case w.G != nil:
		return rules.Living, w.Seq
	case w.Left:
		return rules.SignedOff, w.Seq
	}
	return rules.Dead, w.Seq
}

// Extend implements store.Leaser.
func (s *Store) Extend(ctx context.Context, given store.Beat) (_ []store.Stop, err error) {
	defer says(&err, "extend")
	b := &given
	id := b.Worker.ID.String()
	for try := 0; ; try++ {
		if err := pause(ctx, try); err != nil {
			return nil, err
		}
		w, cas, err := s.readWorker(ctx, id)
		if err != nil {
			return nil, err
		}
		is, last := w.standing()
		if counts, err := rules.Beat(b, is, last); err != nil || !counts {
			return nil, err
		}
		switch {
		case w == nil:
			err = s.register(ctx, b)
		case b.TTL <= 0:
			for i := range b.Notes {
				if err := s.note(ctx, &b.Notes[i]); err != nil {
					return nil, err
				}
			}
			err = s.mutate(ctx, s.meta, workerKey(id), cas, gocb.RemoveSpec("g", nil), gocb.UpsertSpec("left", true, nil))
		default:
			if w.Beat == w.Started { // the answer to its registration may have been lost
				if err := s.enlist(ctx, s.meta, workerList, id); err != nil {
					return nil, err
				}
			}
			err = s.beat(ctx, w, cas, b)
		}
		if mismatch(err) || errors.Is(err, gocb.ErrPathNotFound) {
			if try == 0 || b.Seq == 0 {
				continue
			}
			if w, _, err := s.readWorker(ctx, id); err == nil && w != nil && w.Seq == b.Seq && w.G != nil {
				return s.answerBeat(ctx, w, b) // by an earlier try, whose answer was lost
			}
			continue
		}
		if err != nil || b.TTL <= 0 {
			return nil, err
		}
		return s.answerBeat(ctx, w, b)
	}
}

// register makes the document of a new worker, after its entry in the directory, and enters it again: whoever forgets
// workers may have found none yet. Both are as durable as tasks are: the leases of a worker that nobody knows of would
// not be rescued before the sweep finds them.
func (s *Store) register(ctx context.Context, b *store.Beat) error {
	id, now, g := b.Worker.ID.String(), s.now(ctx), 1
	if err := s.enlist(ctx, s.meta, workerList, id); err != nil {
		return err
	}
	w := worker{G: &g, Info: b.Worker, Started: now, Beat: now, Expires: now + b.TTL.Microseconds(), Seq: b.Seq,
		Names: names(b), Leases: map[string][]string{}, Stops: map[string]string{}}
	err := s.again(ctx, func() error {
		_, err := s.meta.Insert(workerKey(id), w, &gocb.InsertOptions{Context: ctx, DurabilityLevel: s.durability})
		return err
	})
	if err != nil {
		return err
	}
	return s.enlist(ctx, s.meta, workerList, id)
}

func names(b *store.Beat) []string {
	held := make([]string, len(b.Holds))
	for i, token := range b.Holds {
		held[i] = token.String()
	}
	return held
}

// beat extends a worker's leases, and notes what it says it holds. It is not asked about what it claimed after the
// last beat of which it has seen the answer.
func (s *Store) beat(ctx context.Context, w *worker, cas gocb.Cas, b *store.Beat) error {
	now := s.now(ctx)
	since := w.Since
	switch {
	case b.Seq == 0:
		since = 0
	case b.Seen > 0 && b.Seen == w.Seq:
		since = w.Beat
	}
	return s.mutate(ctx, s.meta, workerKey(b.Worker.ID.String()), cas, replaceG, gocb.UpsertSpec("b", now, nil),
		gocb.UpsertSpec("x", now+b.TTL.Microseconds(), nil), gocb.UpsertSpec("i", b.Worker, nil),
		gocb.UpsertSpec("seq", b.Seq, nil), gocb.UpsertSpec("since", since, nil), gocb.UpsertSpec("names", names(b), nil))
}

// answerBeat stores the notes of a beat that counts, and returns what is to be stopped.
func (s *Store) answerBeat(ctx context.Context, w *worker, b *store.Beat) ([]store.Stop, error) {
	errs := make([]error, len(b.Notes))
	_ = each(len(errs), func(i int) error {
		errs[i] = s.note(ctx, &b.Notes[i])
		return nil
	})
	noted := rules.Noted(b.Notes, errs)
	if w == nil {
		return nil, noted
	}
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
	if errors.Is(err, gocb.ErrDocumentNotFound) {
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
	w, _, err := s.readWorker(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case w == nil || w.G == nil:
		return nil, store.ErrWorkerDead
	}
	return slices.Clone(w.Leases[token]), nil
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

func (l *lent) put(d *doc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.docs == nil || l.n > mostLent {
		l.reset()
	}
	l.layDown(d.sheet)
	by := d.task().Run[0]
	if l.docs[by] == nil {
		l.docs[by] = map[string]*doc{}
	}
	l.docs[by][d.ID] = d
	l.n++
}

func (l *lent) reset() {
	l.docs, l.n, l.in, l.ended = map[lease]map[string]*doc{}, 0, map[ref]*doc{}, map[string][]string{}
}

// lay remembers a sheet as it was read or written, if it is the latest of it, and forgets one of which nothing runs.
func (l *lent) lay(d *doc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.layDown(d)
}

func (l *lent) layDown(d *doc) {
	if d == nil || !isSheet(d.ref) || l.in == nil || d.cas != passed && l.in[d.ref] != nil && l.in[d.ref].cas > d.cas {
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
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended == nil {
		l.reset()
	}
	l.ended[worker] = append(l.ended[worker], token)
}

// closed returns up to n tokens under which a worker holds nothing any more, and forgets them.
func (l *lent) closed(worker string, n int) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	tokens := l.ended[worker]
	n = min(n, len(tokens))
	if tokens = tokens[:n:n]; n > 0 {
		l.ended[worker] = l.ended[worker][n:]
	}
	return tokens
}
