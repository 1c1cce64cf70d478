package postgres_test

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

type hang struct{}

func (hang) Kind() string { return "hang" }

// work runs a worker whose tasks never end by themselves, and reports each start.
func work(ctx context.Context, s store.Store, started chan<- string) error {
	client, err := tusk.NewClient(s, nil)
	if err != nil {
		return err
	}
	mux := tusk.NewMux()
	tusk.Handle(mux, func(ctx context.Context, t *tusk.Task[hang]) error {
		started <- t.ID.String()
		<-ctx.Done()
		return ctx.Err()
	})
	w, err := tusk.NewWorker(client, mux, &tusk.WorkerConfig{Lease: 10 * time.Minute, ShutdownTimeout: time.Millisecond})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// This is the process that the test below kills.
func TestWorkerProcess(t *testing.T) {
	dsn := os.Getenv("TUSK_TEST_WORKER")
	if dsn == "" {
		t.Skip("only as a process of its own")
	}
	s, err := postgres.Open(context.Background(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan string, 10)
	go func() {
		for id := range started {
			os.Stdout.WriteString(id + "\n")
		}
	}()
	t.Error(work(context.Background(), s, started))
}

func TestTheTasksOfAKilledProcessRunElsewhereWithinSeconds(t *testing.T) {
	dsn := pgtest.DSN(t)
	s, pool := open(t, dsn, true)
	client, err := tusk.NewClient(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if _, err := client.Enqueue(ctx, hang{}, nil); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestWorkerProcess$")
	cmd.Env = append(os.Environ(), "TUSK_TEST_WORKER="+dsn)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	if _, err := out.Read(make([]byte, 100)); err != nil { // it has started the task
		t.Fatal(err)
	}
	started, ended := make(chan string, 10), make(chan error)
	go func() { ended <- work(ctx, s, started) }()
	for number(t, pool, "select count(*) from tusk.worker where attended is not null") < 2 {
		time.Sleep(10 * time.Millisecond)
	}
	at := time.Now()
	if err := cmd.Process.Kill(); err != nil { // the killed process leads, too
		t.Fatal(err)
	}
	select {
	case <-started:
		t.Logf("it runs elsewhere after %v", time.Since(at))
	case <-time.After(time.Minute):
		t.Error("the lease of ten minutes had to be waited for")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestABeatIsOverdueByHalfOfItsPause(t *testing.T) {
	s, pool := fresh(t)
	beat := store.Beat{Worker: store.Worker{ID: tusk.NewID(), StartedAt: time.Now()}, TTL: time.Minute,
		Every: 2 * time.Second}
	for range 2 {
		if _, err := s.Extend(t.Context(), beat); err != nil {
			t.Fatal(err)
		}
	}
	var wrong int
	err := pool.QueryRow(t.Context(), `select count(*) from tusk.worker where late_at <> beat_at + interval '3 s'`).Scan(
		&wrong)
	if err != nil || wrong > 0 {
		t.Errorf("%d workers are not late three seconds after a beat whose next one is due in two: %v", wrong, err)
	}
}

func TestAWorkerThatLosesItsConnectionLives(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	admit := leader(t, s)
	admit()
	id := newID()
	beat := func() {
		t.Helper()
		if _, err := s.Extend(ctx, store.Beat{Worker: store.Worker{ID: id}, TTL: time.Hour,
			Every: time.Millisecond}); err != nil {
			t.Fatal(err)
		}
	}
	const locks = "select count(*) from pg_locks where locktype = 'advisory' and granted and database = (select oid " +
		"from pg_database where datname = current_database())"
	beat()
	eventually(t, "it is attended", func() bool {
		return number(t, pool, "select count(*) from tusk.worker where attended is not null") == 1
	})
	for range 3 {
		if n := number(t, pool, locks); n != 1 {
			t.Fatalf("%d locks", n)
		}
		if _, err := pool.Exec(ctx,
			"select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and granted and database = (select "+
				"oid from pg_database where datname = current_database())"); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it says that it lives",
			func() bool { return number(t, pool, "select count(*) from tusk.worker where attended is null") == 1 })
		eventually(t, "it is attended again", func() bool {
			return number(t, pool, "select count(*) from tusk.worker where attended is not null") == 1
		})
	}
	beat()
	if _, err := s.Extend(ctx, store.Beat{Worker: store.Worker{ID: id}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "who left is attended no more", func() bool { return number(t, pool, locks) == 0 })
}

func TestBehindAPoolerWorkersLiveByTheirBeatsAlone(t *testing.T) {
	_, pool := fresh(t)
	dsn := pool.Config().ConnString()
	s, err := postgres.Open(context.Background(), bouncer(t, dsn))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	startWorker(t, s)
	// The engine knows as soon as it has looked at the connection.
	eventually(t, "it is told", func() bool { return !s.Witnesses() })
	if n := number(t, pool, "select count(*) from pg_locks where locktype = 'advisory'"); n != 0 {
		t.Errorf("%d locks are on connections that are anybody's", n)
	}
}

// eventually waits until a condition is true.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}
