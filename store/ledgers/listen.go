package ledgers

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

var _ store.Notifier = (*Store)(nil)

// listenAgain is the pause after a listener fails, and the interval between checks for moved ledgers.
const listenAgain = time.Second

// listeners holds the callbacks of the calls of Listen in progress.
type listeners struct {
	mu  sync.Mutex
	all map[*func(store.Hint)]bool
}

func (s *listeners) add(wake *func(store.Hint)) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[*func(store.Hint)]bool{}
	}
	s.all[wake] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.all, wake)
	}
}

func (s *listeners) wake(h store.Hint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for wake := range s.all {
		(*wake)(h)
	}
}

// Listen implements store.Notifier. It uses one connection per server for all ledgers there, and reconnects when the
// connection fails or ledgers come or go.
func (s *Store) Listen(ctx context.Context, wake func(store.Hint)) error {
	if _, err := s.ledgers(ctx); err != nil {
		return err
	}
	heard := make(chan func(), 1)
	hear := func(no int, h store.Hint) {
		if h.ForWorkers() {
			s.turns.heat(no, true)
		}
		select {
		case heard <- func() { wake(h) }:
		case <-ctx.Done():
		}
	}
	defer s.listeners.add(&wake)()
	listens := map[*server]bool{}
	again := time.NewTicker(listenAgain)
	defer again.Stop()
	for {
		for _, at := range s.servers() { // a cluster may get new nodes or addresses
			if !listens[at] {
				listens[at] = true
				go s.listenAt(ctx, at, hear)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-again.C:
		case tell := <-heard:
			tell()
		}
	}
}

// listenAt listens to the ledgers of a server while the server is known.
func (s *Store) listenAt(ctx context.Context, at *server, wake func(no int, h store.Hint)) {
	known := func() bool { return slices.Contains(s.servers(), at) }
	for ctx.Err() == nil && known() {
		numbers, engines := presentAt(*s.all.Load(), at)
		within, cancel := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if len(engines) == 0 { // the server is away, or a standby: wait for ledgers
				<-within.Done()
				return
			}
			defer cancel()
			err := postgres.ListenAll(within, engines, func(i int, h store.Hint) {
				s.turns.listen(numbers[i], true)
				wake(numbers[i], h)
			})
			if errors.Is(err, postgres.ErrCut) {
				s.doubtAll(at)
			}
		}()
		for within.Err() == nil {
			select {
			case <-within.Done():
			case <-time.After(listenAgain):
				if now, _ := presentAt(*s.all.Load(), at); !slices.Equal(now, numbers) || !known() {
					cancel()
				}
			}
		}
		<-ended
		for _, no := range numbers {
			s.turns.listen(no, false)
		}
		if len(engines) > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(listenAgain):
			}
		}
	}
}

// doubtAll probes the ledgers of a server whose listener was cut off. When a server is killed, that is the first sign:
// idle backends end at once, but busy ones may go on to store tasks, which nobody would claim.
func (s *Store) doubtAll(at *server) {
	for _, l := range *s.all.Load() {
		if on, _ := l.whereabouts(); on == at {
			l.doubt()
		}
	}
}

// presentAt returns the ledgers of a server that are not away: their indexes in all, and their engines.
func presentAt(all []*ledger, at *server) (places []int, engines []*postgres.Store) {
	for i, l := range all {
		engine, _, err := l.present()
		if on, _ := l.whereabouts(); err == nil && on == at {
			places, engines = append(places, i), append(engines, engine)
		}
	}
	return places, engines
}
