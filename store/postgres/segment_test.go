package postgres_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

func lead(t testing.TB, s store.Store) int64 {
	t.Helper()
	l, err := s.Lead(context.Background(), store.Candidate{ID: newID(), TTL: time.Hour})
	if err != nil || l.Term == 0 {
		t.Fatal(l, err)
	}
	return l.Term
}

func goRound(t testing.TB, s store.Store, worker store.ID, n int) {
	t.Helper()
	goRoundOf(t, s, worker, "q", n)
}

func goRoundOf(t testing.TB, s store.Store, worker store.ID, queue string, n int) {
	t.Helper()
	ctx := context.Background()
	if _, err := s.Enqueue(ctx, newTasks(n, queue)); err != nil {
		t.Fatal(err)
	}
	tasks, err := s.Claim(ctx, store.ClaimRequest{Worker: worker, Queues: []string{queue}, Limit: n,
		Token: store.NewToken()})
	if err != nil || len(tasks) != n {
		t.Fatal(len(tasks), err)
	}
	finish(t, s, tasks)
}

func number(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) (n int64) {
	t.Helper()
	if err := pool.QueryRow(context.Background(), postgres.InFunctions(sql), args...).Scan(&n); err != nil {
		t.Fatal(sql, err)
	}
	return n
}

// shrink lets the first segment end at the current end of the log, which usually takes a million transactions.
func shrink(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	_, err := pool.Exec(context.Background(), `
		do $$ declare hi text := pg_current_xact_id()::text::bigint + 1; begin
		alter table tusk.log detach partition tusk.task_0;
		-- The database is a copy of one that other tests may have left a million transactions behind.
		insert into tusk.task_0 select * from tusk.task_1 union all select * from tusk.task_2;
		drop table tusk.task_1, tusk.task_2;
		execute format('alter table tusk.log attach partition tusk.task_0 for values from (minvalue) to (%L)', hi);
		execute format('create table tusk.task_1 partition of tusk.log for values from (%L) to (maxvalue)', hi);
		delete from tusk.segment where name = 'task_2';
		update tusk.segment set hi = null where name = 'task_1';
		execute format('update tusk.segment set hi = %L where name = ''task_0''', hi);
		end $$`)
	if err != nil {
		t.Fatal(err)
	}
}

func TestASegmentIsMadeAheadAndDroppedWhenNothingNeedsIt(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	term, w := lead(t, s), startWorker(t, s)
	maintain := func() {
		t.Helper()
		if err := s.Maintain(ctx, term); err != nil {
			t.Fatal(err)
		}
	}
	goRound(t, s, w, 10)
	shrink(t, pool)
	goRound(t, s, w, 10) // these are already in what was the last segment
	maintain()
	if n := number(t, pool, "select count(*) from tusk.segment where hi is not null"); n != 2 {
		t.Fatalf("%d bounded segments", n)
	}
	if n := number(t, pool, "select count(*) from tusk_fn.task"); n != 20 {
		t.Fatalf("%d rows in the log", n)
	}
	if n, err := s.Prune(ctx, term, store.Retention{Completed: time.Microsecond}, 15); err != nil || n != 15 {
		t.Fatal(n, err)
	}
	maintain()
	if n := number(t, pool, "select count(*) from pg_inherits where inhparent = 'tusk.log'::regclass"); n != 2 {
		t.Fatalf("%d segments", n)
	}
	if list, err := s.List(ctx, store.Filter{}); err != nil || len(list) != 5 {
		t.Fatal(len(list), err)
	}
	goRound(t, s, w, 10)
}

// advance uses up transaction ids, so that a segment of the smallest size comes to its end.
func advance(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	ctx := context.Background()
	c := acquire(t, pool)
	defer c.Release()
	for _, text := range []string{
		"set synchronous_commit = off",
		"update tusk.segment set made_at = '2000-01-01'",
		`do $$ declare hi bigint := (select max(hi::text::bigint) from tusk.segment); begin
			while pg_current_xact_id()::text::bigint < hi loop commit; end loop; end $$`,
		"reset synchronous_commit",
	} {
		if _, err := c.Exec(ctx, text); err != nil {
			t.Fatal(err)
		}
	}
}

func TestASegmentIsMadeThoughTransactionsUseTheLogWithoutAPause(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	term := lead(t, s)
	shrink(t, pool)
	var g sync.WaitGroup
	var stop atomic.Bool
	var ended atomic.Int64
	for i := range 6 {
		g.Go(func() {
			for !stop.Load() && !t.Failed() {
				tx, err := pool.Begin(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				u, _ := s.Tx(tx)
				if _, err := u.Enqueue(ctx, newTasks(1, "q")); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Duration(200+30*i) * time.Millisecond)
				if err := tx.Commit(ctx); err != nil {
					t.Error(err)
				}
				ended.Add(1)
			}
		})
	}
	defer g.Wait()
	defer stop.Store(true)
	eventually(t, "transactions go on", func() bool { return ended.Load() > 12 })
	before := ended.Load()
	for end := time.Now().Add(time.Minute); ; {
		if err := s.Maintain(ctx, term); err != nil {
			t.Fatal(err)
		}
		if number(t, pool, "select count(*) from tusk.segment where name = 'task_2'") > 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("no segment was made")
		}
	}
	made := ended.Load()
	eventually(t, "transactions still go on", func() bool { return ended.Load() > made+12 })
	t.Logf("made while %d transactions ended", made-before)
}

func TestATransactionThatStaysOpenHoldsNobodyUpWhileASegmentIsDue(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	term, w := lead(t, s), startWorker(t, s)
	shrink(t, pool)
	tx := enqueueIn(t, s, pool)
	maintained := make(chan error, 1)
	go func() { maintained <- s.Maintain(ctx, term) }()
	waits := 0
	for over := false; !over; {
		select {
		case err := <-maintained:
			if over = true; err != nil {
				t.Fatal(err)
			}
		default:
			goRound(t, s, w, 1)
			if number(t, pool, "select count(*) from pg_locks where relation = 'tusk.log'::regclass and not granted") > 0 {
				waits++
			}
		}
	}
	if waits > 0 {
		t.Errorf("somebody waited for a lock at %d looks", waits)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Maintain(ctx, term); err != nil {
		t.Fatal(err)
	}
	if number(t, pool, "select count(*) from tusk.segment where name = 'task_2'") == 0 {
		t.Error("no segment was made")
	}
}

// enqueueIn enqueues in a transaction that stays open.
func enqueueIn(t *testing.T, s *postgres.Store, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	ctx := context.Background()
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(ctx) })
	u, _ := s.Tx(tx)
	if _, err := u.Enqueue(ctx, newTasks(1, "late")); err != nil {
		t.Fatal(err)
	}
	return tx
}

// A segment that is due waits for transactions that use the log. If another one begins in the meantime and stays
// open, nothing waits for it with a lock behind which all others queue.
func TestATransactionThatBeginsWhileASegmentIsDueHoldsNobodyUp(t *testing.T) {
	for name, before := range map[string]time.Duration{"half a second before the log is free": 500 * time.Millisecond,
		"right before": 0} {
		t.Run(name, func(t *testing.T) {
			s, pool := fresh(t)
			ctx := context.Background()
			term, w := lead(t, s), startWorker(t, s)
			shrink(t, pool)
			first := enqueueIn(t, s, pool)
			maintained := make(chan error, 1)
			go func() { maintained <- s.Maintain(ctx, term) }()
			eventually(t, "it waits", func() bool {
				return number(t, pool,
					"select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'") > 0
			})
			time.Sleep(time.Second - before)
			second := enqueueIn(t, s, pool)
			time.Sleep(before)
			if err := first.Commit(ctx); err != nil {
				t.Fatal(err)
			}
			var longest time.Duration
			for over := false; !over; {
				select {
				case err := <-maintained:
					if over = true; err != nil {
						t.Fatal(err)
					}
				default:
					begun := time.Now()
					goRound(t, s, w, 1)
					longest = max(longest, time.Since(begun))
				}
			}
			t.Logf("an enqueue, a claim and a finish took up to %v", longest)
			if longest > time.Second {
				t.Errorf("an enqueue, a claim and a finish took %v", longest)
			}
			if err := second.Commit(ctx); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestADropThatWasCutShortIsFinished(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	term, w := lead(t, s), startWorker(t, s)
	goRound(t, s, w, 10)
	shrink(t, pool)
	goRound(t, s, w, 10)
	if _, err := s.Prune(ctx, term, store.Retention{Completed: time.Microsecond}, 10); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(ctx, "alter table tusk.log detach partition tusk.task_0"); err != nil { // not dropped
		t.Fatal(err)
	}
	if err := s.Maintain(ctx, term); err != nil {
		t.Fatal(err)
	}
	if n := number(t, pool, "select count(*) from pg_class where relname = 'task_0'") +
		number(t, pool, "select count(*) from tusk.segment where name = 'task_0'"); n != 0 {
		t.Error("the detached segment is still there")
	}
	goRound(t, s, w, 10)
}

func TestCountNeedsNoScanOfWhatWasCounted(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	term, w := lead(t, s), startWorker(t, s)
	late, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	u, _ := s.Tx(late)
	if _, err := u.Enqueue(ctx, newTasks(7, "q")); err != nil {
		t.Fatal(err)
	}
	tasks := newTasks(200, "q")
	if _, err := s.Enqueue(ctx, tasks); err != nil {
		t.Fatal(err)
	}
	available := func(want int64) {
		t.Helper()
		counts, err := s.Count(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var got int64
		for _, c := range counts {
			if c.State == store.Available {
				got = c.Tasks
			}
		}
		if got != want {
			t.Errorf("%d available, want %d", got, want)
		}
	}
	for range 2 {
		if err := s.Maintain(ctx, term); err != nil {
			t.Fatal(err)
		}
		available(200)
	}
	if err := late.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	available(207)
	if _, err := s.Edit(ctx, store.Edit{IDs: []store.ID{tasks[150].ID},
		Change: store.Change{Op: store.Cancel}}); err != nil {
		t.Fatal(err)
	}
	available(206)
	if err := s.Maintain(ctx, term); err != nil {
		t.Fatal(err)
	}
	available(206)
	if _, err := s.Claim(ctx, store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 50,
		Token: store.NewToken()}); err != nil {
		t.Fatal(err)
	}
	available(156)
}
