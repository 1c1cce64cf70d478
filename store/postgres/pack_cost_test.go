package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// cost measures calls by the pages that they touch, over a pool of one connection, whose counters are known at
// once.
type cost struct {
	*testing.T
	s    *postgres.Store
	pool *pgxpool.Pool
	term int64
}

func newCost(t *testing.T) *cost {
	t.Helper()
	s, pool := open(t, migrated.DSN(t, "pool_max_conns=1"), false)
	if _, err := pool.Exec(t.Context(), "alter database "+pool.Config().ConnConfig.Database+
		" set track_counts = on"); err != nil {
		t.Fatal(err)
	}
	return &cost{t, s, pool, lead(t, s)}
}

func (c *cost) touched() int64 {
	c.Helper()
	if _, err := c.pool.Exec(c.Context(), "select pg_stat_force_next_flush()"); err != nil {
		c.Fatal(err)
	}
	return number(c, c.pool, "select blks_hit + blks_read from pg_stat_database where datname = current_database()")
}

// of returns how many pages a call touches.
func (c *cost) of(call func() error) int64 {
	c.Helper()
	before := c.touched()
	if err := call(); err != nil {
		c.Fatal(err)
	}
	return c.touched() - before
}

func (c *cost) enqueue(n int, make func(n int, queue string) []store.NewTask) []store.ID {
	c.Helper()
	tasks := make(n, "q")
	if _, err := c.s.Enqueue(c.Context(), tasks); err != nil {
		c.Fatal(err)
	}
	return idsOf(tasks)
}

func (c *cost) edit(op store.Op, ids []store.ID) func() error {
	return func() error {
		done, err := c.s.Edit(c.Context(), store.Edit{IDs: ids, Change: store.Change{Op: op, Priority: 3, Queue: "z"}})
		for i := range done {
			if done[i].Result != store.Changed {
				c.Fatal(op, done[i])
			}
		}
		return err
	}
}

// calls makes calls that look for tasks by their ids, a hundred at a time, and returns how many pages each of them
// touches. Some calls are made twice, because the first one reads what the server knows about its tables.
func (c *cost) calls(enqueue func(n int, queue string) []store.NewTask) map[string]int64 {
	c.Helper()
	ctx, pages := c.Context(), map[string]int64{}
	w := startWorker(c, c.s)
	claim := store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 500, Token: store.NewToken()}
	tasks, err := c.s.Claim(ctx, claim)
	if err != nil || len(tasks) != 500 {
		c.Fatal(len(tasks), err)
	}
	list := func(f store.Filter, want int) func() error {
		return func() error {
			list, err := c.s.List(ctx, f)
			if len(list) != want {
				c.Fatal(len(list))
			}
			return err
		}
	}
	claim.Again = true
	fail := func(tasks []store.Task) func() error {
		return func() error {
			outcomes := completed(tasks)
			for i := range outcomes {
				outcomes[i].State, outcomes[i].Error, outcomes[i].Fingerprint, outcomes[i].Delay = store.Retryable, "x",
					"f", time.Hour
			}
			_, err := c.s.Finish(ctx, outcomes)
			return err
		}
	}
	ids := make([]store.ID, len(tasks))
	for i := range tasks {
		ids[i] = tasks[i].ID
	}
	fresh := c.enqueue(10000, enqueue)
	twice := func(what string, call func() error) {
		c.of(call)
		pages[what] = c.of(call)
	}
	twice("claim again", func() error {
		again, err := c.s.Claim(ctx, claim)
		if len(again) != 500 {
			c.Fatal(len(again))
		}
		return err
	})
	pages["claim again"] /= 5
	twice("list running ones", list(store.Filter{IDs: ids[:100], Detail: true}, 100))
	twice("list available ones", list(store.Filter{IDs: fresh[:100], Detail: true}, 100))
	twice("list the newest", list(store.Filter{}, 100))
	twice("list the newest available ones", list(store.Filter{States: []store.State{store.Available}}, 100))
	twice("list what runs", list(store.Filter{States: []store.State{store.Running}}, 100))
	c.of(fail(tasks[:100]))
	pages["fail"] = c.of(fail(tasks[100:200]))
	if _, err := c.s.Finish(ctx, completed(tasks[200:400])); err != nil {
		c.Fatal(err)
	}
	twice("list completed ones", list(store.Filter{IDs: ids[200:300], Detail: true}, 100))
	c.of(c.edit(store.Retry, ids[200:250]))
	pages["retry"] = c.of(c.edit(store.Retry, ids[250:350]))
	for i, op := range []store.Op{store.Cancel, store.Reprioritize, store.Move, store.Delete} {
		part := fresh[1000*i:]
		c.of(c.edit(op, part[:10]))
		pages[op.String()] = c.of(c.edit(op, part[500:600]))
	}
	if _, err := c.pool.Exec(ctx, "update tusk.worker set expires_at = '2000-01-01'"); err != nil {
		c.Fatal(err)
	}
	twice("rescue", func() error {
		left, err := c.s.Rescue(ctx, c.term, 1000)
		if len(left) != 100 {
			c.Fatal(len(left))
		}
		return err
	})
	startWorker(c, c.s)
	if _, err := c.s.Finish(ctx, completed(tasks[400:])); err != nil {
		c.Fatal(err)
	}
	twice("stored", func() error {
		n, err := c.s.CountStored(ctx, fresh[5000:5100])
		if n != 100 {
			c.Fatal(n)
		}
		return err
	})
	twice("find one", func() error {
		if number(c, c.pool, "select count(*) from tusk.find('"+fresh[7000].String()+"')") != 1 {
			c.Fatal("it is not found")
		}
		return nil
	})
	return pages
}

// A call that looks for some tasks by their ids among many, after a long history, reads these and no others,
// whether they are in packs or not, and whatever the planner knows.
func TestTasksAreFoundWithoutReadingOthers(t *testing.T) {
	for _, k := range []struct {
		name string
		make func(n int, queue string) []store.NewTask
		many int
	}{{"in packs", newPacks, 250000}, {"by themselves", newTasks, 20000}} {
		t.Run(k.name, func(t *testing.T) {
			c := newCost(t)
			w := startWorker(t, c.s)
			for range 150 {
				goRound(t, c.s, w, 20)
			}
			for range k.many / 10000 {
				c.enqueue(10000, k.make)
			}
			for what, pages := range c.calls(k.make) {
				most := int64(4500)
				switch what {
				// these also read attempts and needs
				case "list the newest", "list the newest available ones", "list running ones", "list available ones",
					"list completed ones":
					most = 25000
				case "cancel", "reprioritize", "move": // a task that may not run yet is looked for in three tables
					most = 14000
				case "delete":
					most = 20000
				case "retry": // one by one
					most = 60000
				}
				if t.Logf("%5d of %d pages: %s", pages, most, what); pages == 0 || pages > most {
					t.Errorf("%s of a hundred tasks touches %d pages, want at most %d", what, pages, most)
				}
			}
		})
	}
}
