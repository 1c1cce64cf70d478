package couchbase

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/couchbase/gocb/v2"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// worker is the document of a worker, which lives while the field g exists. All that only a live worker may do is
// written together with a replacement of g, which fails once g is removed.
type worker struct {
	head
	G       *int         `json:"g,omitempty"`
	Info    store.Worker `json:"i"`
	Started int64        `json:"s0"`
	Beat    int64        `json:"b"`
	Expires int64        `json:"x"`
	Left    bool         `json:"left,omitempty"`
	Combed  bool         `json:"combed,omitempty"` // it is dead and holds nothing: it leaves the directory and expires
	Seq     int64        `json:"seq,omitempty"`    // the number of its last beat
	// The worker knows of leases that were claimed before this time only if their tokens are in Names.
	Since int64    `json:"since,omitempty"`
	Names []string `json:"names,omitempty"`
	// When a claim came into doubt because the index did not answer; 0 if no claim is in doubt.
	Doubt int64 `json:"doubt,omitempty"`
	// The intents: by token, the tasks that the worker was about to lease.
	Leases map[string][]string `json:"l"`
	Stops  map[string]string   `json:"s"` // by task that it should stop: the token

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

// meant returns the tasks of the intents with some tokens, without duplicates: an intent whose answer was lost may be
// stored twice.
func (w *worker) meant(tokens ...string) (ids []string) {
	for _, token := range tokens {
		ids = append(ids, w.Leases[token]...)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

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

// Extend implements store.Leaser. It enters a new worker in the directory before and after creating its document (see
// forget). Without that, nobody would rescue the worker's tasks.
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
			for ; len(b.Notes) > 0; b.Notes = b.Notes[1:] { // each once, even if this try fails
				if refused = s.note(ctx, &b.Notes[0]); refused != nil {
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
	err = cmp.Or(err, refused)
	if errors.Is(err, store.ErrWorkerDead) || err == nil && counts && b.TTL <= 0 {
		s.lent.leave(id)
	}
	if err != nil || !counts || b.TTL <= 0 {
		return nil, err
	}
	if !known {
		if err := s.enlist(ctx, s.meta, workerList, id); err != nil {
			return nil, err
		}
	}
	return s.answerBeat(ctx, w, &b)
}

// extend extends a worker's leases and records which ones it knows of. Leases that it claimed after the last beat whose
// answer it has seen are never strays.
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

// answerBeat stores the notes of a beat that counts, and returns the tasks to stop.
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
		err = s.mutate(ctx, s.meta, workerKey(b.Worker.ID.String()), 0, replaceG, gocb.RemoveSpec(stopPath(id), nil))
		if errors.Is(err, gocb.ErrDocumentNotFound) { // the worker was declared dead, and its document has expired
			return nil, store.ErrWorkerDead
		}
		if err != nil && !errors.Is(err, gocb.ErrPathNotFound) {
			return nil, err
		}
	}
	return stops, noted
}

// note stores a note on a task, if the lease is still open.
func (s *Store) note(ctx context.Context, n *store.Note) error {
	return s.alter(ctx, taskRef(n.ID), func(d *doc) bool {
		if !d.task().holds(n.Lease) {
			return false
		}
		d.task().write(n)
		return true
	})
}

// stop writes into the document of a task's worker that it should stop the task. It does not write the document of a
// dead worker, because a change of one of its parts would remove the expiry.
func (s *Store) stop(ctx context.Context, t *task) error {
	if len(t.Run) == 0 {
		return nil
	}
	err := s.mutate(ctx, s.meta, workerKey(t.Run[0].Worker), 0, replaceG,
		gocb.UpsertSpec(stopPath(t.ID), t.Run[0].Token, nil))
	if absent(err) {
		return nil
	}
	return err
}

// meant returns the tasks of a live worker's intent with a token.
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

// lent holds what this handle has claimed and not yet finished. To end an attempt, a document that is remembered need
// not be read.
type lent struct {
	mu    sync.Mutex
	docs  map[ref]*doc                // tasks or sheets, as last read or written
	open  map[lease]map[store.ID]bool // the tasks of each lease
	ended map[string][]string         // tokens without open leases, by worker
}

// mostLent limits how many documents a handle remembers.
const mostLent = 5000

// lock locks lent, and forgets the documents if there are too many: they can be read again. It keeps the open leases,
// because otherwise their tokens would never be removed from the worker's document.
func (l *lent) lock() {
	l.mu.Lock()
	if l.open == nil {
		l.docs, l.open, l.ended = map[ref]*doc{}, map[lease]map[store.ID]bool{}, map[string][]string{}
	}
	if len(l.docs) > mostLent {
		clear(l.docs)
	}
}

// leave forgets the leases of a worker that has died or left.
func (l *lent) leave(worker string) {
	l.lock()
	defer l.mu.Unlock()
	delete(l.ended, worker)
	maps.DeleteFunc(l.open, func(by lease, _ map[store.ID]bool) bool { return by.Worker == worker })
}

func (l *lent) put(tasks []*doc) {
	l.lock()
	defer l.mu.Unlock()
	for _, d := range tasks {
		by := d.task().Run[0]
		if l.open[by] == nil {
			l.open[by] = map[store.ID]bool{}
		}
		l.open[by][idOf(d.ID)] = true
		l.lay(d.stored())
	}
}

// lay remembers a document, unless a newer one is known.
func (l *lent) lay(d *doc) {
	if is := l.docs[d.ref]; d.cas != passed && (is == nil || is.cas < d.cas) {
		l.docs[d.ref] = d
	}
}

// keep remembers a sheet that was written, if this handle still has to end some of its tasks.
func (l *lent) keep(d *doc) {
	if d == nil || !isSheet(d.ref) {
		return
	}
	l.lock()
	defer l.mu.Unlock()
	sh := d.sheetOf()
	for i, is := range sh.lots {
		if of := l.open[lease{is.Worker, is.Token}]; is.State == "r" && of[idOf(d.idAt(sh.From+i))] {
			l.lay(d)
			return
		}
	}
}

// take records that attempts end. It removes and returns their document if it is remembered, so that only the caller
// changes it.
func (l *lent) take(r ref, ends []*store.Outcome) map[ref]*doc {
	l.lock()
	defer l.mu.Unlock()
	for _, o := range ends {
		by := lease{o.Task.Worker.String(), o.Task.Lease.String()}
		if !l.open[by][o.Task.ID] {
			continue
		}
		if delete(l.open[by], o.Task.ID); len(l.open[by]) == 0 {
			delete(l.open, by)
			l.ended[by.Worker] = append(l.ended[by.Worker], by.Token)
		}
	}
	d := l.docs[r]
	if d == nil {
		return nil
	}
	delete(l.docs, r)
	return map[ref]*doc{r: d}
}

// forgo records that a worker holds nothing under tokens that its document may still have.
func (l *lent) forgo(worker string, tokens ...string) {
	l.lock()
	defer l.mu.Unlock()
	l.ended[worker] = append(l.ended[worker], tokens...)
}

// closed returns up to n tokens under which a worker no longer holds anything, and forgets them.
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
