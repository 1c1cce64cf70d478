package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// A call that is given up is also cancelled in the server, which would otherwise go on waiting and hold its locks.
func TestACallThatIsGivenUpLeavesNothingAtWork(t *testing.T) {
	for name, through := range map[string]func(t *testing.T, dsn string) string{
		"directly":         func(_ *testing.T, dsn string) string { return dsn },
		"through a pooler": func(t *testing.T, dsn string) string { return bouncer(t, dsn) },
	} {
		t.Run(name, func(t *testing.T) {
			dsn := migrated.DSN(t)
			_, pool := open(t, dsn, false)
			ctx := context.Background()
			s, err := postgres.Open(ctx, through(t, dsn))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if _, err := s.Enqueue(ctx, newTasks(2, "q")); err != nil { // so that the lane has a name
				t.Fatal(err)
			}
			tx := begin(t, pool)
			if _, err := tx.Exec(ctx, "lock table tusk.log in share mode"); err != nil {
				t.Fatal(err)
			}
			for _, n := range []int{3, 100} { // by an insert, and by COPY
				within, giveUp := context.WithCancel(ctx)
				answer := make(chan error, 1)
				go func() {
					_, err := s.Enqueue(within, newTasks(n, "q"))
					answer <- err
				}()
				eventually(t, "it waits", func() bool { return number(t, pool, blocked) == 1 })
				giveUp()
				if err := <-answer; !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				eventually(t, "nothing waits", func() bool { return number(t, pool, blocked) == 0 })
			}
			if err := tx.Rollback(ctx); err != nil {
				t.Fatal(err)
			}
			if n := stored(t, pool); n != 2 {
				t.Errorf("%d tasks are stored", n)
			}
			within, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			if _, err := s.Enqueue(within, newTasks(3, "q")); err != nil {
				t.Error(err)
			}
		})
	}
}

// A statement that the server cancels was not committed. The server says so before the commit, or not at all.
func TestAnEnqueueThatTheServerCancelsStoredNothing(t *testing.T) {
	for _, n := range []int{3, 100} {
		s, _, pool := remote(t)
		ctx := context.Background()
		_, answer := enqueueBlocked(t, ctx, s, pool, newTasks(n, "q"))
		if _, err := pool.Exec(ctx, `select pg_cancel_backend(pid) from pg_stat_activity
			where datname = current_database() and wait_event_type = 'Lock'`); err != nil {
			t.Fatal(err)
		}
		if err := <-answer; !errors.Is(err, store.ErrNotCommitted) {
			t.Error(err)
		}
		if n := stored(t, pool); n != 0 {
			t.Errorf("%d tasks", n)
		}
	}
}
