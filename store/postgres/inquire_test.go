package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// remote makes an engine that reaches its database through a proxy on one connection, and a pool that reaches it
// directly.
func remote(t *testing.T) (*postgres.Store, *proxy, *pgxpool.Pool) {
	t.Helper()
	dsn := migrated.DSN(t, "pool_max_conns=1")
	_, pool := open(t, dsn, false)
	p, through := throughProxy(t, dsn)
	s, _ := open(t, through, false)
	return s, p, pool
}

func stored(t *testing.T, pool *pgxpool.Pool) int64 {
	t.Helper()
	return number(t, pool, "select count(*) from tusk.tasks where queue = 'q'")
}

func TestAnEnqueueThatWasCommittedButNotAnsweredSucceeds(t *testing.T) {
	keyed := func(conflict store.OnConflict) []store.NewTask {
		tasks := newTasks(3, "q")
		for i := range tasks {
			tasks[i].Key, tasks[i].OnConflict = fmt.Sprint("key", i), conflict
		}
		return tasks
	}
	later := newTasks(3, "q")
	later[0].Delay = time.Hour
	for name, c := range map[string]struct {
		tasks  []store.NewTask
		answer string
	}{
		"few":        {newTasks(3, "q"), "INSERT 0 3"},
		"many":       {newTasks(100, "q"), "COPY 100"},
		"later":      {later, "SELECT 3"},
		"with a key": {keyed(store.Replace), "SELECT 3"},
	} {
		t.Run(name, func(t *testing.T) {
			s, p, pool := remote(t)
			p.lose(c.answer)
			results, err := s.Enqueue(context.Background(), c.tasks)
			if err != nil || len(results) != len(c.tasks) || !p.lost() {
				t.Fatal(results, err, p.lost())
			}
			for i, r := range results {
				if r.ID != c.tasks[i].ID || r.Result != store.Added {
					t.Errorf("task %d: %+v", i, r)
				}
			}
			if n := stored(t, pool); n != int64(len(c.tasks)) {
				t.Errorf("%d tasks", n)
			}
		})
	}
	t.Run("but for one whose key says what to do", func(t *testing.T) {
		s, p, pool := remote(t)
		p.lose("SELECT 3")
		tasks := keyed(store.Rerun)
		if _, err := s.Enqueue(context.Background(), tasks); !errors.Is(err, store.ErrUnavailable) ||
			errors.Is(err, store.ErrNotCommitted) {
			t.Fatal(err)
		}
		if _, err := s.Enqueue(context.Background(), keyed(store.Skip)); err != nil {
			t.Fatal(err)
		}
		if n := stored(t, pool); n != 3 {
			t.Errorf("%d tasks", n)
		}
	})
}

// enqueueBlocked begins an enqueue of tasks that waits for a lock until free is called.
func enqueueBlocked(
	t *testing.T, ctx context.Context, s *postgres.Store, pool *pgxpool.Pool, tasks []store.NewTask,
) (free func(), answer <-chan error) {
	t.Helper()
	if _, err := s.Enqueue(ctx, newTasks(len(tasks), "other")); err != nil { // so that the statement is prepared
		t.Fatal(err)
	}
	_, locker := open(t, plain(pool.Config().ConnString()), false)
	tx, err := locker.Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	free = func() { tx.Rollback(context.Background()) }
	t.Cleanup(free)
	if _, err := tx.Exec(context.Background(), "lock table tusk.log in share mode"); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := s.Enqueue(ctx, tasks)
		answered <- err
	}()
	eventually(t, "it waits", func() bool { return number(t, pool, blocked) == 1 })
	return free, answered
}

// blocked counts the clients that wait for a lock. Autovacuum may wait as well.
const blocked = "select count(*) from pg_stat_activity where datname = current_database() and " +
	"wait_event_type = 'Lock' and backend_type = 'client backend'"

func TestAnEnqueueWhoseBackendIsKilledBeforeItCommitsStoredNothing(t *testing.T) {
	for _, n := range []int{3, 100} {
		s, p, pool := remote(t)
		ctx := context.Background()
		tasks := newTasks(n, "q")
		_, answer := enqueueBlocked(t, ctx, s, pool, tasks)
		p.lose("57P01")
		if _, err := pool.Exec(ctx,
			"select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and "+
				"wait_event_type = 'Lock'"); err != nil {
			t.Fatal(err)
		}
		if err := <-answer; !errors.Is(err, store.ErrNotCommitted) || !errors.Is(err, store.ErrUnavailable) || !p.lost() {
			t.Fatal(err, p.lost())
		}
		if n := stored(t, pool); n != 0 {
			t.Errorf("%d tasks", n)
		}
	}
}

func TestAnEnqueueThatIsStillAtWorkIsWaitedFor(t *testing.T) {
	s, p, pool := remote(t)
	free, answer := enqueueBlocked(t, context.Background(), s, pool, newTasks(3, "q"))
	p.deaf.Store(true)
	p.Cut()
	eventually(t, "it asks", func() bool { return number(t, pool, asks) > 0 })
	free()
	if err := <-answer; err != nil {
		t.Fatal(err)
	}
	if n := stored(t, pool); n != 3 {
		t.Errorf("%d tasks", n)
	}
}

const asks = "select count(*) from pg_stat_activity where datname = current_database() and query like '%from " +
	"pg_catalog.unnest($1::uuid[]) u(id)%' and pid <> pg_backend_pid()"

func TestAnEnqueueThatStaysAtWorkStaysUnknown(t *testing.T) {
	s, p, pool := remote(t)
	_, answer := enqueueBlocked(t, context.Background(), s, pool, newTasks(3, "q"))
	p.deaf.Store(true)
	p.Cut()
	if err := <-answer; !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrNotCommitted) {
		t.Fatal(err)
	}
}

func TestBehindAPoolerNobodySaysThatAnEnqueueStoredNothing(t *testing.T) {
	dsn := migrated.DSN(t)
	_, pool := open(t, dsn, false)
	p, through := throughProxy(t, bouncer(t, dsn))
	s, _ := open(t, through, false)
	p.lose("INSERT 0 2")
	if _, err := s.Enqueue(context.Background(), newTasks(2, "q")); err != nil || !p.lost() {
		t.Fatal(err, p.lost())
	}
	_, answer := enqueueBlocked(t, context.Background(), s, pool, newTasks(3, "q"))
	p.deaf.Store(true)
	p.Cut()
	if err := <-answer; !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrNotCommitted) {
		t.Fatal(err)
	}
}
