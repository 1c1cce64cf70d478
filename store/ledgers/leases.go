package ledgers

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// leases records which ledgers know the workers of this process, and which ledgers each token has tasks from. It is
// only a hint, with two exceptions. A beat does not name a token in a ledger whose answer to its claim was lost, so
// that the ledger takes back what it leased. And a worker does not claim from a ledger that its last beat did not
// reach.
type leases struct {
	mu      sync.Mutex
	of      map[store.Token]*lease
	strange map[store.ID]bits // ledgers that a worker's last beat did not reach
	last    map[store.ID]sent // the last beat of each worker
	visits  map[visit]time.Time
}

// sent is a beat and the time of its answer.
type sent struct {
	store.Beat
	at time.Time
}

// visit identifies a ledger that has to learn about a worker. It is not repeated before its time in leases.visits.
type visit struct {
	worker store.ID
	no     int
}

// lease is what is known about a token.
type lease struct {
	worker     store.ID
	held, lost bits // ledgers that returned tasks, and ledgers whose answer was lost
	absent     int  // number of beats in a row that did not name it
}

// bits is a set of ledgers.
type bits uint64

func (b bits) has(no int) bool { return b>>no&1 != 0 }

// mostLeases limits the remembered tokens. Workers that do not number their beats never drop any.
const mostLeases = 1 << 16

func (a *leases) lease(worker store.ID, token store.Token) *lease {
	if a.of == nil || len(a.of) > mostLeases {
		a.of = map[store.Token]*lease{}
	}
	l := a.of[token]
	if l == nil {
		l = &lease{worker: worker}
		a.of[token] = l
	}
	return l
}

func (a *leases) hold(worker store.ID, token store.Token, no int, tasks bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.lease(worker, token)
	if l.lost &^= 1 << no; tasks {
		l.held |= 1 << no
	}
}

func (a *leases) lose(worker store.ID, token store.Token, no int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lease(worker, token).lost |= 1 << no
}

// place returns the ledger that a token has tasks from, if it is known and the only one.
func (a *leases) place(token store.Token) (no int, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.of[token]
	if l == nil || l.held == 0 || l.held&(l.held-1) != 0 {
		return 0, false
	}
	for !l.held.has(no) {
		no++
	}
	return no, true
}

// unmet reports whether the last beat of a worker did not reach a ledger.
func (a *leases) unmet(worker store.ID, no int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.strange[worker].has(no)
}

// met records which ledgers a beat did not reach.
func (a *leases) met(b *store.Beat, missed bits) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.strange == nil {
		a.strange = map[store.ID]bits{}
	}
	a.remember(b)
	if missed == 0 || b.TTL <= 0 {
		delete(a.strange, b.Worker.ID)
	} else {
		a.strange[b.Worker.ID] = missed
	}
	named := make(map[store.Token]bool, len(b.Holds))
	for _, token := range b.Holds {
		named[token] = true
	}
	for token, l := range a.of {
		switch {
		case l.worker != b.Worker.ID || b.Seq == 0 && b.TTL > 0:
		case named[token]:
			l.absent = 0
		default:
			if l.absent++; l.absent > 2 || b.TTL <= 0 {
				delete(a.of, token)
			}
		}
	}
}

// forget removes a dead worker.
func (a *leases) forget(worker store.ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.strange, worker)
	delete(a.last, worker)
	maps.DeleteFunc(a.of, func(_ store.Token, l *lease) bool { return l.worker == worker })
}

// noted returns the tasks of notes that certainly belong to a ledger.
func (a *leases) noted(notes []store.Note, no int) (tasks []store.ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range notes {
		if l := a.of[notes[i].Lease]; l != nil && l.held.has(no) {
			tasks = append(tasks, notes[i].ID)
		}
	}
	return tasks
}

// beat returns the part of a beat for one ledger: the tokens that the worker may hold there, and the notes on their
// tasks.
func (a *leases) beat(b store.Beat, no int) store.Beat {
	a.mu.Lock()
	defer a.mu.Unlock()
	foreign := func(token store.Token) bool {
		l := a.of[token]
		return l != nil && !l.held.has(no) && (l.held != 0 || l.lost.has(no))
	}
	b.Holds = slices.DeleteFunc(slices.Clone(b.Holds), func(token store.Token) bool {
		l := a.of[token]
		return l != nil && l.lost.has(no) && !l.held.has(no)
	})
	b.Notes = slices.DeleteFunc(slices.Clone(b.Notes), func(n store.Note) bool { return foreign(n.Lease) })
	return b
}

// Extend implements store.Leaser. All ledgers know the worker. A beat counts if it reached at least one of them.
// Ledgers of one server that get no notes are told in one round trip.
func (s *Store) Extend(ctx context.Context, b store.Beat) ([]store.Stop, error) {
	all, err := s.ledgers(ctx)
	if err != nil {
		return nil, err
	}
	parts := make([]store.Beat, len(all))
	for i := range all {
		parts[i] = s.leases.beat(b, i)
	}
	stops := make([][]store.Stop, len(all))
	errs := make([]error, len(all))
	told := s.tellTogether(ctx, all, parts, stops, errs)
	settling, cancel := atFirst(ctx, settledWithin)
	defer cancel()
	inTurn(all, func(i int, l *ledger) {
		if told[i] {
			return
		}
		if b.TTL <= 0 {
			l.awaitSettled(settling, b.Worker.ID)
		}
		stops[i], errs[i] = ask(ctx, l, func(ctx context.Context, e *postgres.Store) ([]store.Stop, error) {
			return e.Extend(ctx, parts[i])
		})
	})
	if errors.Is(errors.Join(errs...), store.ErrWorkerDead) {
		s.bury(ctx, all, b, errs)
	}
	return s.beaten(&b, parts, slices.Concat(stops...), errs)
}

// tellTogether sends the parts of a beat that can share a round trip. It returns which parts it sent.
func (s *Store) tellTogether(
	ctx context.Context, all []*ledger, parts []store.Beat, stops [][]store.Stop, errs []error,
) (told []bool) {
	told = make([]bool, len(all))
	var done sync.WaitGroup
	for _, at := range s.servers() {
		done.Go(func() {
			var numbers []int
			var engines []*postgres.Store
			var beats []store.Beat
			present, on := presentAt(all, at)
			for i, no := range present {
				if part := parts[no]; part.TTL > 0 && len(part.Notes) == 0 {
					numbers, engines, beats = append(numbers, no), append(engines, on[i]), append(beats, part)
				}
			}
			if len(numbers) < 2 {
				return
			}
			answers, err := askTogether(ctx, all, numbers, func(ctx context.Context) ([][]store.Stop, error) {
				return postgres.ExtendAll(ctx, engines, beats)
			})
			if errors.Is(err, postgres.ErrNotTogether) {
				return
			}
			for i, no := range numbers {
				if told[no], errs[no] = true, err; err == nil {
					stops[no] = answers[i]
				}
			}
		})
	}
	done.Wait()
	return told
}

// bury signs off a worker that one ledger has declared dead in the other ledgers that this beat reached. Otherwise they
// would list the worker, and rescue its tasks only a TTL later. Ledgers that bury does not reach notice when the TTL is
// over.
func (s *Store) bury(ctx context.Context, all []*ledger, b store.Beat, errs []error) {
	if b.TTL, b.Notes, b.Holds = 0, nil, nil; b.Seq > 0 {
		b.Seq++ // they have accepted the previous number already
	}
	inTurn(all, func(i int, l *ledger) {
		if errs[i] == nil || errors.As(errs[i], new(*store.HeldError)) {
			_, _ = ask(ctx, l, func(ctx context.Context, e *postgres.Store) ([]store.Stop, error) {
				return e.Extend(ctx, b)
			})
		}
	})
}

// beaten combines the answers to a beat.
func (s *Store) beaten(b *store.Beat, parts []store.Beat, stops []store.Stop, errs []error) ([]store.Stop, error) {
	missed := ^bits(0) << len(errs) // includes ledgers that are added later
	var held []store.ID
	reached := false
	failed := errors.Join(errs...)
	for i, err := range errs {
		h := new(store.HeldError)
		switch {
		case err == nil:
			reached = true
		case errors.As(err, &h):
			reached, held = true, append(held, h.Tasks...)
		default:
			missed |= 1 << i
			held = append(held, s.leases.noted(parts[i].Notes, i)...)
		}
	}
	if errors.Is(failed, store.ErrWorkerDead) {
		s.leases.forget(b.Worker.ID)
	}
	if !reached || errors.Is(failed, store.ErrWorkerDead) || errors.Is(failed, store.ErrLate) {
		return nil, failed
	}
	s.leases.met(b, missed)
	if len(held) > 0 {
		return stops, heldError(failed, held)
	}
	return stops, nil
}

// heldError returns an error that names the tasks that a call could not handle yet, and the reason.
func heldError(why error, tasks []store.ID) error {
	return errors.Join(&store.HeldError{Tasks: tasks}, why)
}
