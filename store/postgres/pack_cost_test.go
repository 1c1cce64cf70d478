package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

// alone opens a store whose pool has one connection, so that what it did is known at once.
func alone(t *testing.T) (*postgres.Store, *pgxpool.Pool) {
	t.Helper()
	return open(t, pgtest.Prepared(t, migrate, "pool_max_conns=1"), false)
}

// touched returns how many pages the only connection of a pool has touched so far.
func touched(t *testing.T, pool *pgxpool.Pool) int64 {
	t.Helper()
	if _, err := pool.Exec(t.Context(), "select pg_stat_force_next_flush()"); err != nil {
		t.Fatal(err)
	}
	return number(t, pool, "select blks_hit + blks_read from pg_stat_database where datname = current_database()")
}

func TestTasksInPacksAreFoundWithoutReadingOthers(t *testing.T) {
	s, pool := alone(t)
	ctx := t.Context()
	term := lead(t, s)
	w := startWorker(t, s)
	const total, each = 300000, 10000
	var ids []store.ID
	begun := time.Now()
	for range total / each {
		tasks := newPacks(each, "q")
		if _, err := s.Enqueue(ctx, tasks); err != nil {
			t.Fatal(err)
		}
		for i := range tasks {
			ids = append(ids, tasks[i].ID)
		}
	}
	t.Logf("filled in %v", time.Since(begun))
	measure := func(what string, call func() error) {
		t.Helper()
		before := touched(t, pool)
		begun := time.Now()
		err := call()
		took := time.Since(begun)
		if err != nil {
			t.Fatal(what, err)
		}
		t.Logf("%8d pages %10v %s", touched(t, pool)-before, took.Round(10*time.Microsecond), what)
	}
	var tasks []store.Task
	var err error
	claim := store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 500, Token: store.NewToken()}
	measure("claim", func() error {
		tasks, err = s.Claim(ctx, claim)
		return err
	})
	claim.Again = true
	for range 2 {
		measure("again", func() error {
			tasks, err = s.Claim(ctx, claim)
			return err
		})
	}
	if len(tasks) != 500 {
		t.Fatal(len(tasks))
	}
	for range 2 {
		measure("list running", func() error {
			_, err := s.List(ctx, store.Filter{States: []store.State{store.Running}})
			return err
		})
		measure("list 100 ids", func() error {
			_, err := s.List(ctx, store.Filter{IDs: ids[450:550], Detail: true})
			return err
		})
		measure("list 1 id", func() error {
			_, err := s.List(ctx, store.Filter{IDs: ids[200000:200001], Detail: true})
			return err
		})
	}
	outcomes := completed(tasks)
	for i := range outcomes {
		outcomes[i].State, outcomes[i].Error, outcomes[i].Fingerprint, outcomes[i].Delay = store.Retryable, "x", "f", time.Hour
	}
	measure("finish 100 fail", func() error {
		_, err := s.Finish(ctx, outcomes[:100])
		return err
	})
	measure("finish 100 fail", func() error {
		_, err := s.Finish(ctx, outcomes[100:200])
		return err
	})
	measure("finish 100 ok", func() error {
		_, err := s.Finish(ctx, completed(tasks[200:300]))
		return err
	})
	for range 2 {
		measure("list 100 ids completed", func() error {
			_, err := s.List(ctx, store.Filter{IDs: ids[200:300], Detail: true})
			return err
		})
	}
	edit := func(what string, op store.Op, ids []store.ID) {
		t.Helper()
		measure(what, func() error {
			done, err := s.Edit(ctx, store.Edit{IDs: ids, Change: store.Change{Op: op, Priority: 3, Queue: "z"}})
			for i := range done {
				if done[i].Result != store.Changed {
					t.Fatal(done[i])
				}
			}
			return err
		})
	}
	edit("cancel 1", store.Cancel, ids[1000:1001])
	edit("cancel 1", store.Cancel, ids[100000:100001])
	edit("move 1000", store.Move, ids[200000:201000])
	edit("move 10000", store.Move, ids[220000:230000])
	edit("reprio 1000", store.Reprioritize, ids[210000:211000])
	edit("rerun 100", store.Retry, ids[200:300])
	edit("delete 1000", store.Delete, ids[250000:251000])
	if _, err := pool.Exec(ctx, "update tusk.worker set expires_at = '2000-01-01'"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		measure("rescue", func() error {
			tasks, err := s.Rescue(ctx, term, 1000)
			if err == nil && len(tasks) != 200 {
				t.Fatal(len(tasks))
			}
			return err
		})
	}
	w = startWorker(t, s)
	measure("prune", func() error {
		_, err := s.Prune(ctx, term, store.Retention{Completed: time.Hour}, 100000)
		return err
	})
	measure("count", func() error {
		_, err := s.Count(ctx)
		return err
	})
	measure("maintain", func() error { return s.Maintain(ctx, term) })
	for _, f := range []store.Filter{{States: []store.State{store.Running}}, {States: []store.State{store.Completed}}, {States: []store.State{store.Available}},
		{Kinds: []string{"mail"}}, {Queues: []string{"z"}}, {}, {Tenants: []string{""}}, {Kinds: []string{"none"}}} {
		for range 2 {
			measure("search", func() error {
				tasks, last, err := s.Search(ctx, f, 20000)
				t.Log(f.States, f.Kinds, f.Queues, len(tasks), last)
				return err
			})
		}
	}
	measure("find", func() error {
		number(t, pool, "select count(*) from tusk.find('"+ids[150000].String()+"')")
		return nil
	})
	measure("again", func() error {
		claim = store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 500, Token: store.NewToken()}
		tasks, err = s.Claim(ctx, claim)
		return err
	})
}
