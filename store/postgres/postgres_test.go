package postgres_test

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

// No test leaves a goroutine behind.
func TestMain(m *testing.M) { pgtest.Main(leakless{m}) }

type leakless struct{ m *testing.M }

func (l leakless) Run() int {
	code := l.m.Run()
	if err := goleak.Find(goleak.IgnoreAnyFunction(
		"github.com/tuskqueue/tusk/store/postgres/pgtest.(*Server).await.func1")); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// fresh makes an engine on a database of its own.
func fresh(t testing.TB) (*postgres.Store, *pgxpool.Pool) {
	t.Helper()
	return open(t, migrated.DSN(t), false)
}

func open(t testing.TB, dsn string, migrate bool) (*postgres.Store, *pgxpool.Pool) {
	t.Helper()
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s, err := postgres.New(ctx, pool, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if migrate {
		if _, err := s.Migrate(ctx, -1); err != nil {
			t.Fatal(err)
		}
	}
	return s, pool
}

// newID mints a UUID of version 7.
func newID() (id store.ID) {
	rand.Read(id[:])
	binary.BigEndian.PutUint64(id[:8], uint64(time.Now().UnixMilli())<<16|uint64(id[6])<<8|uint64(id[7]))
	id[6], id[8] = id[6]&0x0f|0x70, id[8]&0x3f|0x80
	return id
}

func newTasks(n int, queue string) []store.NewTask {
	tasks := make([]store.NewTask, n)
	for i := range tasks {
		tasks[i] = store.NewTask{ID: newID(), Kind: "mail", Queue: queue, Args: fmt.Appendf(nil, `{"n":%d}`, i)}
	}
	return tasks
}

// acquire returns a connection, which the caller releases.
func acquire(t testing.TB, pool *pgxpool.Pool) *pgxpool.Conn {
	t.Helper()
	c, err := pool.Acquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// startWorker registers a worker.
func startWorker(t testing.TB, s store.Store) store.ID {
	t.Helper()
	w := store.Worker{ID: newID(), Host: "here", Queues: []string{"q"}, Concurrency: 10}
	if _, err := s.Extend(context.Background(), store.Beat{Worker: w, TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	return w.ID
}

func completed(tasks []store.Task) []store.Outcome {
	outcomes := make([]store.Outcome, len(tasks))
	for i := range tasks {
		outcomes[i] = store.Outcome{Task: &tasks[i], State: store.Completed, Attempt: tasks[i].Attempt, Ran: time.Millisecond}
	}
	return outcomes
}

// finish completes tasks, and fails if one is lost.
func finish(t testing.TB, s interface {
	Finish(ctx context.Context, outcomes []store.Outcome) ([]store.ID, error)
}, tasks []store.Task) {
	t.Helper()
	if lost, err := s.Finish(context.Background(), completed(tasks)); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
}

func TestATaskGoesRound(t *testing.T) {
	s, _ := fresh(t)
	ctx := context.Background()
	for _, n := range []int{3, 100} {
		tasks := newTasks(n, "q")
		tasks[0].Tags, tasks[0].Tenant, tasks[0].Settings = []string{`a"\`, "b,{}"}, "acme", []byte{0, 1}
		if _, err := s.Enqueue(ctx, tasks); err != nil {
			t.Fatal(err)
		}
		w := startWorker(t, s)
		var claimed []store.Task
		for len(claimed) < n {
			got, err := s.Claim(ctx, store.ClaimRequest{Worker: w, Queues: []string{"none", "q"}, Limit: 2,
				Token: store.NewToken()})
			if err != nil {
				t.Fatal(err)
			}
			if len(got) == 0 {
				t.Fatalf("claimed %d of %d", len(claimed), n)
			}
			claimed = append(claimed, got...)
		}
		for i := range claimed {
			if claimed[i].ID != tasks[i].ID {
				t.Fatalf("task %d came out of order", i)
			}
		}
		t.Logf("%+v", claimed[0])
		lost, err := s.Finish(ctx, completed(claimed))
		if err != nil || len(lost) > 0 {
			t.Fatal(lost, err)
		}
		lost, err = s.Finish(ctx, completed(claimed))
		if err != nil || len(lost) != n {
			t.Fatal(len(lost), err)
		}
	}
	list, err := s.List(ctx, store.Filter{Detail: true})
	if err != nil || len(list) != 100 {
		t.Fatal(len(list), err)
	}
	t.Logf("%+v %+v", list[0], list[0].Detail)
	counts, err := s.Count(ctx)
	if err != nil || len(counts) != 0 {
		t.Fatal(counts, err)
	}
	if stats, err := s.Stats(ctx, store.StatsFilter{Bucket: time.Minute}); err != nil || len(stats) == 0 {
		t.Fatal(stats, err)
	}
}
