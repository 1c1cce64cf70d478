package postgres_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store"
)

func TestStatisticsOfPrunedFlushesAreFoldedAndSayTheSame(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	w := startWorker(t, s)
	term := lead(t, s)
	for range 30 {
		goRound(t, s, w, 5)
	}
	filter := store.StatsFilter{From: time.Now().Add(-time.Hour), Bucket: time.Minute}
	before, err := s.Stats(ctx, filter)
	if err != nil {
		t.Fatal(err)
	}
	for round := range 2 { // the second round has nothing left to do
		if _, err := s.Prune(ctx, term, store.Retention{Completed: time.Microsecond, Stats: time.Hour}, 10000); err != nil {
			t.Fatal(err)
		}
		if rows := number(t, pool, "select count(*) from tusk.stat where minutes = 0"); rows != int64(30-30*round) {
			t.Errorf("round %d: %d loose rows", round, rows)
		}
		if err := s.Maintain(ctx, term); err != nil {
			t.Fatal(err)
		}
		if rows := number(t, pool, "select count(*) from tusk.stat"); rows > 6 {
			t.Errorf("round %d: %d rows for a minute or two", round, rows)
		}
		after, err := s.Stats(ctx, filter)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(before, after) {
			t.Errorf("round %d: %+v became %+v", round, before, after)
		}
	}
}

func TestStatisticsSayTheSameWhenFlushesAreSummedUpPrunedAndRebased(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	w := startWorker(t, s)
	term := lead(t, s)
	now := time.Now()
	filters := []store.StatsFilter{
		{},
		{From: now.Add(-25 * time.Hour), Bucket: time.Hour},
		{From: now.Add(-49 * time.Hour), Until: now.Add(time.Hour), Bucket: 24 * time.Hour},
		{From: now.Truncate(24 * time.Hour), Until: now.Truncate(24 * time.Hour).Add(48 * time.Hour), Bucket: 24 * time.Hour},
		{Until: now.Add(-time.Hour), Bucket: time.Hour},
	}
	all := func() (said [][]store.Stat) {
		for _, f := range filters {
			stats, err := s.Stats(ctx, f)
			if err != nil {
				t.Fatal(err)
			}
			said = append(said, stats)
		}
		return said
	}
	for range 510 {
		goRound(t, s, w, 1)
	}
	before := all()
	same := func(after string) {
		t.Helper()
		if now := all(); !reflect.DeepEqual(before, now) {
			t.Errorf("after %s: %+v became %+v", after, before, now)
		}
	}
	maintain := func() {
		t.Helper()
		if err := s.Maintain(ctx, term); err != nil {
			t.Fatal(err)
		}
	}
	prune := func(limit int) {
		t.Helper()
		if _, err := s.Prune(ctx, term, store.Retention{Completed: time.Microsecond, Stats: 48 * time.Hour},
			limit); err != nil {
			t.Fatal(err)
		}
	}
	unread := "select count(*) from tusk.outcome where stats is not null and xid >= (select upto from tusk.stat_end)"
	maintain()
	if n := number(t, pool, unread); n > 0 {
		t.Errorf("%d flushes are not summed up", n)
	}
	same("they are summed up")
	prune(5)
	same("a few are pruned")
	for range 6 {
		goRound(t, s, w, 1)
	}
	before = all()
	maintain()
	if n := number(t, pool, unread); n != 6 {
		t.Errorf("%d flushes wait for others, not 6", n)
	}
	same("a few wait for others")
	prune(508)
	if n := number(t, pool, "select count(*) from tusk.stat where minutes = 0"); n != 3 {
		t.Errorf("%d flushes are kept, not 3", n)
	}
	same("some of those are pruned")
	if _, err := s.Rebase(ctx, false); err != nil {
		t.Fatal(err)
	}
	same("a rebase")
	term = lead(t, s)
	maintain()
	if n := number(t, pool, "select count(*) from tusk.stat where minutes = 0"); n != 0 {
		t.Errorf("%d flushes are not summed up", n)
	}
	same("all are summed up")
}

// An open transaction does not hold up the sums, and is added to them when it ends.
func TestStatisticsAreSummedUpPastAnOpenTransaction(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	w := startWorker(t, s)
	term := lead(t, s)
	var open [3]pgx.Tx
	for i := range open {
		if _, err := s.Enqueue(ctx, newTasks(1, "q")); err != nil {
			t.Fatal(err)
		}
		task := claimOne(t, s, w)
		tx := begin(t, pool)
		u := txOf(t, s, tx)
		finish(t, u, []store.Task{task})
		open[i] = tx
	}
	want := int64(0)
	check := func(when string, unread int64) {
		t.Helper()
		stats, err := s.Stats(ctx, store.StatsFilter{From: time.Now().Add(-time.Hour), Bucket: 2 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		got := int64(0)
		for i := range stats {
			got += stats[i].Completed
		}
		if got != want {
			t.Errorf("%s: %d completed, not %d", when, got, want)
		}
		n := number(t, pool,
			"select count(*) from tusk.outcome where stats is not null and xid >= (select upto from tusk.stat_end)")
		if n > unread {
			t.Errorf("%s: %d flushes are not summed up, of %d at most", when, n, unread)
		}
	}
	maintain := func() {
		t.Helper()
		if err := s.Maintain(ctx, term); err != nil {
			t.Fatal(err)
		}
	}
	for range 510 {
		goRound(t, s, w, 1)
	}
	want = 510
	check("before", 510)
	maintain()
	check("beside three open transactions", 0)
	for i, end := range []func(context.Context) error{open[0].Commit, open[1].Rollback} {
		if err := end(ctx); err != nil {
			t.Fatal(err)
		}
		want += int64(1 - i)
	}
	check("one has committed, one is undone", 0)
	maintain()
	check("one has committed, one is undone, and all is summed up", 0)
	if n := number(t, pool, "select cardinality(late) from tusk.stat_end"); n != 1 {
		t.Errorf("%d transactions are waited for, not one", n)
	}
	if err := open[2].Commit(ctx); err != nil {
		t.Fatal(err)
	}
	want++
	if _, err := s.Prune(ctx, term, store.Retention{Completed: time.Microsecond, Stats: time.Hour}, 10000); err != nil {
		t.Fatal(err)
	}
	check("the last has committed, and is pruned", 0)
	maintain()
	check("at the end", 0)
	if n := number(t, pool, "select cardinality(late) from tusk.stat_end"); n != 0 {
		t.Errorf("%d transactions are waited for", n)
	}
}
