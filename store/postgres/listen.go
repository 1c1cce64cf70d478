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
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/internal/bell"
	"github.com/tuskqueue/tusk/store"
)

const (
	listenWithin = 5 * time.Second
	pingEvery    = 15 * time.Second // of silence, before the listener checks that notifications still arrive
	pingWithin   = 5 * time.Second  // limit for the ping, and then for its arrival
)

var (
	_ store.Notifier = (*Store)(nil)
	_ store.Prompter = (*Store)(nil)
)

// ErrCut says that the connection of a listener broke after notifications had arrived on it.
var ErrCut = errors.New("the connection broke")

// errDeaf says that notifications do not arrive.
var errDeaf = errors.New("notifications do not arrive, as behind a pooler in transaction mode")

// Prompt implements store.Prompter.
func (s *Store) Prompt() bool { return s.hearing.Load() > 0 }

// Listen implements store.Notifier, on a connection of its own. It sends itself a ping whenever it has received
// nothing for a while, because notifications may fail to arrive on a live connection. Notifications are sent after
// the commit: at once, and then at most every 3 to 20 ms for a queue and process, or every 20 to 100 ms for the
// leader. None is sent for tasks that workers of the same process take; see near.
func (s *Store) Listen(ctx context.Context, wake func(store.Hint)) error {
	return ListenAll(ctx, []*Store{s}, func(_ int, h store.Hint) { wake(h) })
}

// ListenAll is Listen for several engines on one pool, with one connection. It calls wake with
// the index of the engine.
func ListenAll(ctx context.Context, all []*Store, wake func(i int, h store.Hint)) error {
	l := listener{all: all, wake: wake, of: map[string]int{}}
	for i, s := range all {
		l.of[s.channel()] = i
	}
	c, err := l.start(ctx)
	if err != nil {
		return fmt.Errorf("listen: %w", translate(err))
	}
	defer c.Close(context.WithoutCancel(ctx))
	near, leave := context.WithCancel(ctx)
	var g sync.WaitGroup
	defer g.Wait()
	defer leave()
	for i, s := range all {
		g.Go(func() { _ = s.near.bell.Listen(near, func(h store.Hint) { wake(i, h) }) })
	}
	if err := l.hear(ctx, c); ctx.Err() == nil {
		return fmt.Errorf("listen: %w", err)
	}
	return ctx.Err()
}

// listener passes on the notifications for several engines.
type listener struct {
	all  []*Store // on one pool
	of   map[string]int
	wake func(i int, h store.Hint)
}

// Dial opens a connection outside a pool in the way the pool does. BeforeConnect may set a password that changes, or
// another address.
func Dial(ctx context.Context, pool *pgxpool.Pool) (*pgx.Conn, error) {
	config := pool.Config()
	to := config.ConnConfig.Copy()
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, to); err != nil {
			return nil, err
		}
	}
	return pgx.ConnectConfig(ctx, to)
}

func (l *listener) start(ctx context.Context) (*pgx.Conn, error) {
	within, cancel := context.WithTimeout(ctx, listenWithin)
	defer cancel()
	c, err := Dial(within, l.all[0].pool)
	if err != nil {
		return nil, err
	}
	for _, s := range l.all {
		if _, err := c.Exec(within, "listen "+s.channel()); err != nil {
			c.Close(within)
			return nil, err
		}
	}
	return c, nil
}

func (s *Store) channel() string { return s.schema + "_wake" }

// hear passes on notifications until they stop arriving. Any notification proves that they arrive. The first one
// wakes all engines, because earlier ones may have been missed.
//
// Every listener receives each ping. So listeners do not send their pings at the same time, and one that has received
// another's ping sends none.
func (l *listener) hear(ctx context.Context, c *pgx.Conn) error {
	first := l.all[0]
	ping := pingPrefix + store.NewToken().String()
	heard, asked, wait := false, false, rand.N(first.pingWithin/20)
	crowds := map[string]*crowd{}
	for channel, i := range l.of {
		wake := func(name string) { l.wake(i, bell.Hint([]string{name})) }
		crowds[channel] = &crowd{s: l.all[i], wake: wake, pending: map[string]pendingWake{}}
	}
	for {
		quiet, cancel := context.WithTimeout(ctx, wait)
		n, err := c.WaitForNotification(quiet)
		timeout := quiet.Err() != nil // asked before cancel, which ends quiet, too
		cancel()
		switch {
		case err == nil:
			if !heard {
				for i, s := range l.all {
					s.hearing.Add(1)
					defer s.hearing.Add(-1)
					l.wake(i, store.Hint{})
				}
			}
			if c := crowds[n.Channel]; c != nil && !strings.HasPrefix(n.Payload, pingPrefix) {
				c.tell(n.Payload)
			}
			heard, asked, wait = true, false, first.pingEvery+rand.N(first.pingEvery/4)
		case ctx.Err() != nil:
			return err
		case !timeout && heard:
			return fmt.Errorf("%w: %w", ErrCut, err)
		case !timeout:
			return err
		case asked:
			return errDeaf
		default:
			if err := first.ping(ctx, ping); err != nil {
				return err
			}
			asked, wait = true, first.pingWithin
		}
	}
}

const pingPrefix = "\x01" // no queue's name contains it

// ping sends a notification from another session, because behind a pooler a session may receive only its own
// notifications. The other session may have died silently, too.
func (s *Store) ping(ctx context.Context, ping string) error {
	within, cancel := context.WithTimeout(ctx, s.pingWithin)
	defer cancel()
	if err := s.exec(within, "notify", s.channel(), ping); err != nil {
		return fmt.Errorf("ping: %w", translate(err))
	}
	return nil
}
