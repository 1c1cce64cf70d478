package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store"
)

const (
	notifyEvery  = 20 * time.Millisecond // a process tells of a queue no more often
	notifyWithin = 5 * time.Second
	listenWithin = 5 * time.Second
	pingEvery    = 15 * time.Second // of silence, before the listener asks whether it still hears
	pingWithin   = 5 * time.Second  // for asking, and then for the answer
)

var _ store.Notifier = (*Store)(nil)

// errDeaf says that notifications do not arrive.
var errDeaf = errors.New("notifications do not arrive, as behind a pooler in transaction mode")

// Listen implements store.Notifier, on a connection of its own. It sends a ping
// whenever it has heard nothing for a while: a connection can be alive and deaf.
// Wakes are sent by Enqueue and Admit after their commit, at once and then at most
// every 20 ms for a queue and process.
func (s *Store) Listen(ctx context.Context, wake func(queues ...string)) error {
	c, err := s.startListening(ctx)
	if err != nil {
		return fmt.Errorf("listen: %w", translate(err))
	}
	defer c.Close(context.WithoutCancel(ctx))
	if err := s.hear(ctx, c, wake); ctx.Err() == nil {
		return fmt.Errorf("listen: %w", err)
	}
	return ctx.Err()
}

func (s *Store) startListening(ctx context.Context) (*pgx.Conn, error) {
	within, cancel := context.WithTimeout(ctx, listenWithin)
	defer cancel()
	c, err := pgx.ConnectConfig(within, s.pool.Config().ConnConfig.Copy())
	if err != nil {
		return nil, err
	}
	if _, err := c.Exec(within, "listen "+s.channel()); err != nil {
		c.Close(within)
		return nil, err
	}
	return c, nil
}

func (s *Store) channel() string { return s.schema + "_wake" }

// hear passes notifications on until they stop to arrive. Whatever arrives shows that it
// hears; the first wakes everybody, because what came before it listened was missed.
//
// Each ping is heard by every listener, so they do not all send theirs at a time, and
// one that has heard another's sends none.
func (s *Store) hear(ctx context.Context, c *pgx.Conn, wake func(queues ...string)) error {
	ping := pingPrefix + store.NewToken().String()
	heard, asked, wait := false, false, rand.N(s.pingWithin/20)
	for {
		quiet, cancel := context.WithTimeout(ctx, wait)
		n, err := c.WaitForNotification(quiet)
		cancel()
		switch {
		case err == nil:
			if !heard {
				wake()
			}
			if !strings.HasPrefix(n.Payload, pingPrefix) {
				wake(n.Payload)
			}
			heard, asked, wait = true, false, s.pingEvery+rand.N(s.pingEvery/4)
		case ctx.Err() != nil || quiet.Err() == nil:
			return err
		case asked:
			return errDeaf
		default:
			if err := s.ping(ctx, ping); err != nil {
				return err
			}
			asked, wait = true, s.pingWithin
		}
	}
}

const pingPrefix = "\x01" // no queue's name has it

// ping sends a notification from another session: a pooler lets one hear itself.
// That session may have died silently, too.
func (s *Store) ping(ctx context.Context, ping string) error {
	within, cancel := context.WithTimeout(ctx, s.pingWithin)
	defer cancel()
	if _, err := s.pool.Exec(within, s.sql["notify"], s.channel(), ping); err != nil {
		return fmt.Errorf("ping: %w", translate(err))
	}
	return nil
}

// bell holds back notifications that come too often.
type bell struct {
	mu    sync.Mutex
	rung  map[string]time.Time
	later map[string]bool
}

// ring tells listeners that a queue may have got tasks, soon and not too often,
// without keeping the caller.
func (s *Store) ring(queues ...string) {
	if s.quiet {
		return
	}
	s.bell.mu.Lock()
	defer s.bell.mu.Unlock()
	if s.bell.rung == nil || len(s.bell.rung) > 10000 {
		s.bell.rung, s.bell.later = map[string]time.Time{}, map[string]bool{}
	}
	for _, queue := range queues {
		if s.bell.later[queue] {
			continue
		}
		s.bell.later[queue] = true
		time.AfterFunc(notifyEvery-time.Since(s.bell.rung[queue]), func() { s.notify(queue) })
	}
}

// notify sends one notification. Nobody relies on it, so its error is of no use.
func (s *Store) notify(queue string) {
	s.bell.mu.Lock()
	s.bell.rung[queue] = time.Now()
	delete(s.bell.later, queue)
	s.bell.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), notifyWithin)
	defer cancel()
	_, _ = s.pool.Exec(ctx, s.sql["notify"], s.channel(), queue)
}
