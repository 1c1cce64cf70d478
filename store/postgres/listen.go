package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store"
)

const (
	listenWithin = 5 * time.Second
	pingEvery    = 15 * time.Second // of silence, before the listener asks whether it still hears
	pingWithin   = 5 * time.Second  // for asking, and then for the answer
)

var (
	_ store.Notifier = (*Store)(nil)
	_ store.Prompter = (*Store)(nil)
)

// errDeaf says that notifications do not arrive.
var errDeaf = errors.New("notifications do not arrive, as behind a pooler in transaction mode")

// Prompt implements store.Prompter.
func (s *Store) Prompt() bool { return s.hearing.Load() > 0 }

// Listen implements store.Notifier, on a connection of its own. It sends a ping
// whenever it has heard nothing for a while: a connection can be alive and deaf.
// Wakes are sent by Enqueue and Admit after their commit, at once and then at most
// every 3 to 20 ms for a queue and process.
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
	crowd := crowd{s: s, wake: wake, pending: map[string]bool{}}
	for {
		quiet, cancel := context.WithTimeout(ctx, wait)
		n, err := c.WaitForNotification(quiet)
		cancel()
		switch {
		case err == nil:
			if !heard {
				s.hearing.Add(1)
				defer s.hearing.Add(-1)
				wake()
			}
			if !strings.HasPrefix(n.Payload, pingPrefix) {
				crowd.tell(n.Payload)
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
