package postgres_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

func TestAListenerIsToldOfQueuesThatGotTasks(t *testing.T) {
	s, pool := fresh(t)
	ctx, cancel := context.WithCancel(context.Background())
	told := make(chan []string, 1000)
	ended := make(chan error, 1)
	go func() { ended <- s.Listen(ctx, func(h store.Hint) { told <- h.Queues }) }()
	await := func(want ...string) {
		t.Helper()
		deadline := time.After(10 * time.Second)
		for {
			select {
			case got := <-told:
				if slices.Equal(got, want) {
					return
				}
			case <-deadline:
				t.Fatalf("nobody told of %q", want)
			}
		}
	}
	await() // it listens, and has noticed so
	var g sync.WaitGroup
	for range 4 {
		g.Go(func() {
			for range 50 {
				if _, err := s.Enqueue(ctx, newTasks(1, "q")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	g.Wait()
	await("q")
	other := newTasks(1, "späť")
	if _, err := s.Enqueue(ctx, other); err != nil {
		t.Fatal(err)
	}
	await("späť")
	if _, err := pool.Exec(ctx,
		"select tusk.enqueue('mail', '{\"to\": 1}', priority => -1, key => 'k', tags => '{a,b}')"); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	list, err := s.List(context.Background(), store.Filter{Queues: []string{"default"}})
	if err != nil || len(list) != 1 || list[0].Priority != -1 || list[0].Key != "k" || len(list[0].Tags) != 2 ||
		string(list[0].Args) != `{"to": 1}` {
		t.Fatalf("%+v %v", list, err)
	}
	if _, err := store.ParseID(list[0].ID.String()); err != nil || list[0].ID[6]>>4 != 7 || list[0].ID[8]>>6 != 2 {
		t.Fatal(list[0].ID)
	}
	if n := number(t, pool, "select count(*) from tusk.tasks where state = 'available'"); n != 202 {
		t.Fatalf("%d tasks in the view", n)
	}
	if warnings, err := s.Check(context.Background()); err != nil || len(warnings) > 0 {
		t.Fatal(warnings, err)
	}
}

// A command that enqueues a task and ends wakes the worker of another process.
func TestWhatWasRungForIsToldBeforeTheEnd(t *testing.T) {
	s, pool := fresh(t)
	ctx, cancel := context.WithCancel(t.Context())
	told, ended := make(chan []string, 100), make(chan error, 1)
	go func() { ended <- s.Listen(ctx, func(h store.Hint) { told <- h.Queues }) }()
	<-told // the listener has started
	brief, _ := open(t, pool.Config().ConnString(), false)
	if _, err := brief.Enqueue(ctx, newTasks(1, "brief")); err != nil {
		t.Fatal(err)
	}
	if err := brief.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-told:
		if !slices.Equal(got, []string{"brief"}) {
			t.Errorf("told of %q", got)
		}
	case <-time.After(5 * time.Second):
		t.Error("nobody was told of the task")
	}
	cancel()
	<-ended
}

// Each ping goes to every listener. If all listeners sent pings, or one for each that they hear, many workers would do
// little else.
func TestListenersShareTheirPings(t *testing.T) {
	s, pool := fresh(t)
	s.PingEvery(400*time.Millisecond, 5*time.Second)
	ctx, cancel := context.WithCancel(context.Background())
	var g sync.WaitGroup
	const listeners = 20
	heard := make(chan bool, listeners)
	for range listeners {
		g.Go(func() {
			once := sync.OnceFunc(func() { heard <- true })
			if err := s.Listen(ctx, func(store.Hint) { once() }); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	c := acquire(t, pool)
	defer c.Release()
	if _, err := c.Exec(ctx, "listen tusk_wake"); err != nil {
		t.Fatal(err)
	}
	for range listeners {
		<-heard
	}
	pings := 0
	for round := time.Now().Add(4 * time.Second); time.Now().Before(round); pings++ {
		within, stop := context.WithDeadline(ctx, round)
		_, err := c.Conn().WaitForNotification(within)
		if stop(); err != nil {
			break
		}
	}
	if pings == 0 || pings > 5*listeners {
		t.Errorf("%d listeners sent %d pings in 4 s, want about one for every 400 ms of silence, and a few at first",
			listeners, pings)
	}
	t.Logf("%d pings", pings)
	cancel()
	g.Wait()
	if _, err := c.Exec(context.Background(), "unlisten *"); err != nil {
		t.Error(err)
	}
}

func TestAListenerWhoseConnectionDiesSilentlyIsRenewedAndTasksStartMeanwhile(t *testing.T) {
	dsn := migrated.DSN(t)
	p, through := throughProxy(t, dsn)
	_, pool := open(t, dsn, false)
	s, _ := open(t, through, false)
	s.PingEvery(200*time.Millisecond, 2*time.Second)
	client, err := tusk.NewClient(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	started, ended := make(chan string, 10), make(chan error)
	go func() { ended <- work(ctx, s, started) }()
	const listener = "select coalesce(max(pid), 0) from pg_stat_activity where datname = current_database() and query " +
		"= 'listen tusk_wake' and pid <> $1"
	var first int64
	eventually(t, "it listens", func() bool { first = number(t, pool, listener, 0); return first != 0 })
	p.stall(func(l *line) bool { return l.listens.Load() })
	if _, err := client.Enqueue(ctx, hang{}, nil); err != nil {
		t.Fatal(err)
	}
	<-started
	eventually(t, "it listens again", func() bool { return number(t, pool, listener, first) != 0 })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestAListenerAsksWhetherItHearsOnAConnectionThatMayBeDeadToo(t *testing.T) {
	dsn := migrated.DSN(t, "pool_max_conns=1")
	p, through := throughProxy(t, dsn)
	s, _ := open(t, through, false)
	s.PingEvery(200*time.Millisecond, time.Second)
	hears, ended := make(chan bool, 1000), make(chan error)
	go func() { ended <- s.Listen(context.Background(), func(store.Hint) { hears <- true }) }()
	<-hears
	p.stall(func(*line) bool { return true })
	defer p.Cut()
	select {
	case err := <-ended:
		t.Log(err)
	case <-time.After(20 * time.Second):
		t.Fatal("it still listens")
	}
}

// A listener whose connection ends says so at once. It neither sends a ping nor calls the connection deaf.
func TestAListenerSaysThatItsConnectionWasCut(t *testing.T) {
	s, pool := fresh(t)
	hears, ended := make(chan bool, 1000), make(chan error)
	go func() { ended <- s.Listen(context.Background(), func(store.Hint) { hears <- true }) }()
	<-hears
	number(t, pool, "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database() "+
		"and query = 'listen tusk_wake'")
	if err := <-ended; !errors.Is(err, postgres.ErrCut) {
		t.Errorf("%v, want that the connection was cut", err)
	}
}
