package ledgers

import (
	"context"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

var _ store.Notifier = (*Store)(nil)

// listenAgain is the pause after a listener broke.
const listenAgain = time.Second

// Listen implements store.Notifier. A ledger whose listener breaks is listened to again.
func (s *Store) Listen(ctx context.Context, wake func(queues ...string)) error {
	all, err := s.ledgers(ctx)
	if err != nil {
		return err
	}
	heard := make(chan func(), 1)
	listen := func(l *ledger) {
		for ctx.Err() == nil {
			_, _ = ask(ctx, l, func(ctx context.Context, e *postgres.Store) (struct{}, error) {
				return struct{}{}, e.Listen(ctx, func(queues ...string) {
					s.turns.heat(l.no, true)
					select {
					case heard <- func() { wake(queues...) }:
					case <-ctx.Done():
					}
				})
			})
			select {
			case <-ctx.Done():
			case <-time.After(listenAgain):
			}
		}
	}
	for _, l := range all {
		go listen(l)
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case tell := <-heard:
			tell()
		}
	}
}
