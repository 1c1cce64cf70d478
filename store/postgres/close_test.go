package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

func TestALeaseIsGoneWhenTheLastOfItsTasksHasEndedInATransaction(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	term := lead(t, s)
	left := func(when string) {
		t.Helper()
		if err := s.Maintain(ctx, term); err != nil {
			t.Fatal(err)
		}
		if n := number(t, pool, "select (select count(*) from tusk.lease) + (select count(*) from tusk.finished)"); n > 0 {
			t.Errorf("%s: %d rows of leases are left", when, n)
		}
	}
	for when, flush := range map[string]func(tasks []store.Task){
		"all in transactions":      func([]store.Task) {},
		"others before the commit": nil,
		"others after the commit": func(tasks []store.Task) {
			finish(t, s, tasks)
		},
	} {
		tasks := running(t, s, newTasks(5, "q"))
		tx := begin(t, pool)
		switch {
		case flush == nil:
			completeIn(t, s, tx, tasks[:2])
			finish(t, s, tasks[2:])
		case when == "all in transactions":
			completeIn(t, s, tx, tasks)
		default:
			completeIn(t, s, tx, tasks[:2])
		}
		if err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		if flush != nil && when != "all in transactions" {
			flush(tasks[2:])
		}
		left(when)
	}
}

func TestALargeFlushBesideATransactionNeedsFewLocks(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	const n = 20000
	tasks := running(t, s, newTasks(n, "q"))
	tx := begin(t, pool)
	completeIn(t, s, tx, tasks[:1])
	if lost, err := s.Finish(ctx, completed(tasks[1:])); err != nil || len(lost) > 0 {
		t.Fatalf("lost %d, %v", len(lost), err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if done := number(t, pool, "select sum(cardinality(firsts)) from tusk.outcome where counts is null"); done > n {
		t.Errorf("%d of %d are completed", done, n)
	}
	if twice, err := s.CompletedTwice(ctx); err != nil || twice > 0 {
		t.Errorf("%d twice, %v", twice, err)
	}
	if left := number(t, pool, "select count(*) from tusk_fn.running"); left > 0 {
		t.Errorf("%d are still running", left)
	}
}

// Rows of transactions that commit late lie behind the claims of others.
func TestAnIdleLaneIsNotMovedOnOverTasksThatNobodyHasClaimed(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	term, w := lead(t, s), startWorker(t, s)
	claim := func() []store.Task {
		t.Helper()
		tasks, err := s.Claim(ctx, store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 10, Token: store.NewToken()})
		if err != nil {
			t.Fatal(err)
		}
		return tasks
	}
	enqueue := func(e store.Enqueuer) {
		t.Helper()
		if _, err := e.Enqueue(ctx, newTasks(1, "q")); err != nil {
			t.Fatal(err)
		}
	}
	tidy := func() {
		t.Helper()
		if err := s.Tidy(ctx, term, 10, 0); err != nil {
			t.Fatal(err)
		}
	}
	enqueue(s)
	if n := len(claim()); n != 1 {
		t.Fatal(n)
	}
	late := begin(t, pool)
	u := txOf(t, s, late)
	enqueue(u)
	enqueue(s)
	if n := len(claim()) + len(claim()); n != 1 {
		t.Fatal(n)
	}
	tidy()
	if err := late.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	tidy()
	if n := len(claim()); n != 1 {
		t.Errorf("%d claimed of one that was committed late", n)
	}
	enqueue(s)
	tidy()
	tidy()
	if n := len(claim()); n != 1 {
		t.Errorf("%d claimed of one that was enqueued while the lane was idle", n)
	}
}

func TestASegmentStaysWhileALeaseNeedsIt(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	term, w := lead(t, s), startWorker(t, s)
	if _, err := s.Enqueue(ctx, newTasks(2, "q")); err != nil {
		t.Fatal(err)
	}
	c := store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 2, Token: store.NewToken()}
	held, err := s.Claim(ctx, c)
	if err != nil || len(held) != 2 {
		t.Fatal(len(held), err)
	}
	segments := func() int64 {
		t.Helper()
		for range 2 {
			if _, err := s.Prune(ctx, term, store.Retention{Completed: time.Microsecond}, 1000); err != nil {
				t.Fatal(err)
			}
			if err := s.Maintain(ctx, term); err != nil {
				t.Fatal(err)
			}
		}
		return number(t, pool, "select count(*) from pg_inherits where inhparent = 'tusk.log'::regclass")
	}
	shrink(t, pool)
	goRound(t, s, w, 10)
	before := segments()
	c.Again = true
	again, err := s.Claim(ctx, c)
	if err != nil || len(again) != 2 || string(again[0].Args) != string(held[0].Args) {
		t.Fatalf("the tasks of an open lease are gone: %d, %v", len(again), err)
	}
	if lost, err := s.Finish(ctx, []store.Outcome{{Task: &held[0], State: store.Available},
		completed(held[1:])[0]}); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	if tasks, err := s.Claim(ctx, store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 2,
		Token: store.NewToken()}); err != nil || len(tasks) != 1 {
		t.Fatal(len(tasks), err)
	} else if lost, err := s.Finish(ctx, completed(tasks)); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	if after := segments(); after >= before {
		t.Errorf("%d segments with the lease, %d without: the test has not met the case", before, after)
	}
}
