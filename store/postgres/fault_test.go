package postgres_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

// bouncer starts pgbouncer in transaction mode with one connection to the server, and returns a DSN through it.
func bouncer(t testing.TB, dsn string) string {
	t.Helper()
	return bouncerOf(t, dsn, 1)
}

// bouncerOf is bouncer with the given number of connections to the server.
func bouncerOf(t testing.TB, dsn string, connections int) string {
	t.Helper()
	return pgtest.Bouncer(t, dsn, "transaction", connections)
}

// load runs producers and workers until n tasks have been completed. It fails if an acknowledged task is not among
// them, or if a task is accepted twice. One of the workers has one slot.
func load(t *testing.T, s *postgres.Store, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var mu sync.Mutex
	added, maybe, done := map[store.ID]bool{}, map[store.ID]bool{}, map[store.ID]int{}
	var finished atomic.Int64
	forgive := func(err error) {
		if err != nil && !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrNotCommitted) {
			t.Error(err)
		}
	}
	var producers, workers sync.WaitGroup
	for range 4 {
		producers.Go(func() {
			for range n / 40 {
				tasks := newTasks(10, "q")
				_, err := s.Enqueue(ctx, tasks)
				forgive(err)
				mu.Lock()
				for i := range tasks {
					switch {
					case err == nil:
						added[tasks[i].ID] = true
					case !errors.Is(err, store.ErrNotCommitted):
						maybe[tasks[i].ID] = true
					}
				}
				mu.Unlock()
			}
		})
	}
	var produced atomic.Bool
	claim := func(c store.ClaimRequest, tasks []store.Task, err error) []store.Task {
		for c.Again = true; errors.Is(err, store.ErrUnavailable) || postgres.IsBusy(err); {
			tasks, err = s.Claim(ctx, c)
		}
		forgive(err)
		return tasks
	}
	finish := func(outcomes []store.Outcome, lost int, err error) {
		unheard := false
		for errors.Is(err, store.ErrUnavailable) || postgres.IsBusy(err) { // what it lost may have been accepted
			unheard = true
			var ids []store.ID
			ids, err = s.Finish(ctx, outcomes)
			lost = len(ids)
		}
		forgive(err)
		if lost > 0 && !unheard {
			t.Errorf("%d finishes of open leases were lost", lost)
		}
		mu.Lock()
		defer mu.Unlock()
		for i := range outcomes {
			done[outcomes[i].Task.ID]++
		}
		finished.Add(int64(len(outcomes)))
	}
	left := func() bool {
		mu.Lock()
		defer mu.Unlock()
		for id := range added {
			if done[id] == 0 {
				return true
			}
		}
		return false
	}
	for _, limit := range []int{20, 20, 1} {
		workers.Go(func() {
			beat := store.Beat{Worker: store.Worker{ID: newID()}, TTL: time.Hour}
			w := beat.Worker.ID
			tell := func() { // a beat with no leases
				for err := store.ErrUnavailable; errors.Is(err, store.ErrUnavailable); {
					beat.Seq++
					if _, err = s.Extend(ctx, beat); err == nil {
						beat.Seen = beat.Seq
					}
				}
			}
			tell()
			ask := func() store.ClaimRequest {
				return store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: limit, Token: store.NewToken()}
			}
			for empty := 0; (empty < 3 || left()) && ctx.Err() == nil && !t.Failed(); {
				if empty > 0 {
					tell()
				}
				c := ask()
				tasks, err := s.Claim(ctx, c)
				tasks = claim(c, tasks, err)
				if len(tasks) == 0 && produced.Load() {
					empty++
				}
				for limit == 1 && len(tasks) == 1 && ctx.Err() == nil {
					c, ended := ask(), completed(tasks)
					x := s.Exchange(ctx, ended[0], c)
					lost := 0
					if x.Lost {
						lost = 1
					}
					finish(ended, lost, x.FinishErr)
					tasks = claim(c, x.Tasks, x.ClaimErr)
				}
				outcomes := completed(tasks)
				lost, err := s.Finish(ctx, outcomes)
				finish(outcomes, len(lost), err)
			}
		})
	}
	rescuing, ended := context.WithCancel(ctx)
	var rescuer sync.WaitGroup
	rescuer.Go(func() { giveBack(rescuing, s, forgive) })
	producers.Wait()
	produced.Store(true)
	workers.Wait()
	ended()
	rescuer.Wait()
	twice, err := s.CompletedTwice(ctx)
	for errors.Is(err, store.ErrUnavailable) {
		twice, err = s.CompletedTwice(ctx)
	}
	if err != nil || twice > 0 {
		t.Errorf("%d tasks are completed more than once, %v", twice, err)
	}
	for id := range added {
		if done[id] != 1 {
			t.Errorf("task %v was completed %d times", id, done[id])
		}
	}
	for id := range done {
		if !added[id] && !maybe[id] {
			t.Errorf("task %v was never stored, as its enqueue said", id)
		}
	}
	t.Logf("%d added, %d perhaps, %d completed", len(added), len(maybe), len(done))
}

// giveBack leads, and makes tasks available that workers hold without knowing it, until the context ends.
func giveBack(ctx context.Context, s *postgres.Store, forgive func(error)) {
	c := store.Candidate{ID: newID(), TTL: time.Minute}
	for ctx.Err() == nil {
		l, err := s.Lead(ctx, c)
		if c.Term = l.Term; err == nil && l.Term != 0 {
			s.LookAtAll()
			var tasks []store.Task
			if tasks, err = s.Rescue(ctx, l.Term, 1000); len(tasks) > 0 {
				outcomes := make([]store.Outcome, len(tasks))
				for i := range tasks {
					outcomes[i] = store.Outcome{Task: &tasks[i], State: store.Available, Attempt: tasks[i].Attempt - 1}
				}
				_, err = s.Finish(ctx, outcomes)
			}
		}
		if ctx.Err() == nil {
			forgive(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	c.TTL = 0
	for _, err := s.Lead(context.WithoutCancel(ctx), c); errors.Is(err, store.ErrUnavailable); {
		_, err = s.Lead(context.WithoutCancel(ctx), c)
	}
}

func TestItWorksBehindAPoolerInTransactionModeOnOneConnection(t *testing.T) {
	dsn := pgtest.DSN(t)
	open(t, dsn, true)
	s, _ := open(t, bouncer(t, dsn), false)
	load(t, s, 2000)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.Listen(ctx, func(store.Hint) {}); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a deaf listener was not noticed: %v", err)
	}
	term := lead(t, s)
	if err := s.Maintain(ctx, term); err != nil {
		t.Error(err)
	}
	for _, ask := range []func() error{
		func() error { _, err := s.List(ctx, store.Filter{Detail: true}); return err },
		func() error { _, err := s.Count(ctx); return err },
		func() error { _, err := s.Stats(ctx, store.StatsFilter{Bucket: time.Minute}); return err },
		func() error { _, err := s.Errors(ctx, store.ErrorFilter{}); return err },
		func() error { _, err := s.Workers(ctx); return err },
		func() error { _, err := s.Check(ctx); return err },
	} {
		if err := ask(); err != nil {
			t.Error(err)
		}
	}
}

func TestOneConnectionIsEnough(t *testing.T) {
	dsn := pgtest.DSN(t, "pool_max_conns=1")
	s, _ := open(t, dsn, true)
	load(t, s, 2000)
}

func TestNothingIsLostWhenBackendsAreKilled(t *testing.T) {
	dsn := pgtest.DSN(t)
	s, _ := open(t, dsn, true)
	_, killer := open(t, dsn, false)
	ctx, cancel := context.WithCancel(context.Background())
	var g sync.WaitGroup
	var killed atomic.Int64
	g.Go(func() {
		for ctx.Err() == nil {
			var n int64
			_ = killer.QueryRow(ctx, `select count(*) from (
				select pg_terminate_backend(pid) from pg_stat_activity
				where datname = current_database() and pid <> pg_backend_pid() and random() < 0.5) x`).Scan(&n)
			killed.Add(n)
			select {
			case <-ctx.Done():
			case <-time.After(30 * time.Millisecond):
			}
		}
	})
	load(t, s, 8000)
	cancel()
	g.Wait()
	t.Logf("%d backends killed", killed.Load())
}

func TestWhatTheServerRolledBackIsTriedAgain(t *testing.T) {
	s, pool := fresh(t)
	_, err := pool.Exec(context.Background(), `
		create function injected() returns trigger language plpgsql as $$ begin
			if random() < 0.15 then
				raise exception 'injected' using errcode = case when random() < 0.5 then '40001' else '40P01' end;
			end if;
			return null;
		end $$;
		create trigger injected after insert on tusk.log for each statement execute function injected();
		create trigger injected after insert on tusk.lease for each statement execute function injected();
		create trigger injected after insert on tusk.outcome for each statement execute function injected()`)
	if err != nil {
		t.Fatal(err)
	}
	load(t, s, 2000)
	m, err := s.Measure(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if m.Conflicts == 0 {
		t.Error("nothing was injected")
	}
}

func TestNothingIsLostWhenConnectionsAreCutInTheMiddleOfAStatement(t *testing.T) {
	dsn := migrated.DSN(t)
	p, through := throughProxy(t, dsn)
	s, _ := open(t, through, false)
	p.cutOneIn.Store(20)
	load(t, s, 2000)
	if p.cuts.Load() == 0 {
		t.Error("nothing was cut")
	}
	t.Logf("%d connections cut", p.cuts.Load())
}

// A request that a client sent before its connection broke may arrive after the client has sent the same request on
// another connection and has got the answer.
func TestNothingIsLostWhenWhatWasSentOnABrokenConnectionArrivesLate(t *testing.T) {
	dsn := migrated.DSN(t)
	_, pool := open(t, dsn, false)
	p, through := throughProxy(t, dsn)
	s, _ := open(t, through, false)
	p.lag.Store(int64(15 * time.Millisecond))
	p.cutOneIn.Store(20)
	load(t, s, 2000)
	if p.cuts.Load() == 0 {
		t.Error("nothing was cut")
	}
	if n := number(t, pool, "select count(*) from tusk_fn.running r join tusk.outcome o on o.token = r.token"); n > 0 {
		t.Errorf("%d tasks are leased under a token whose tasks have ended", n)
	}
	t.Logf("%d connections cut", p.cuts.Load())
}

// Outcomes that bring tasks are written separately, after the rest.
func TestAFinishThatFailsHalfWayDoesNotSayThatNothingWasStored(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	outcomes := completed(running(t, s, newTasks(2, "q")))
	outcomes[1].Then = newTasks(1, "a queue without a name")
	_, err := pool.Exec(ctx, `
		create function injected() returns trigger language plpgsql as $$ begin raise exception 'injected'; end $$;
		create trigger injected before insert on tusk.lane for each statement execute function injected()`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Finish(ctx, outcomes); err == nil || errors.Is(err, store.ErrNotCommitted) {
		t.Error(err)
	}
	if n := number(t, pool, "select count(*) from tusk.tasks where state = 'completed'"); n != 1 {
		t.Errorf("%d are completed", n)
	}
}
