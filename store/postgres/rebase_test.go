package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

func TestARestoredDumpIsRefusedUntilItIsRebased(t *testing.T) {
	ctx := context.Background()
	from := pgtest.DSN(t)
	s, pool := open(t, from, true)
	s.PackAll()
	if _, err := pool.Exec(ctx,
		"do $$ begin for i in 1 .. 3000 loop perform pg_current_xact_id(); commit; end loop; end $$"); err != nil {
		t.Fatal(err)
	}
	w := startWorker(t, s)
	goRound(t, s, w, 20)
	if _, err := s.Enqueue(ctx, newPacks(30, "q")); err != nil {
		t.Fatal(err)
	}
	claimed, err := s.Claim(ctx, store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 10, Token: store.NewToken()})
	if err != nil || len(claimed) != 10 {
		t.Fatal(len(claimed), err)
	}
	if _, err := s.Finish(ctx, completed(claimed[:5])); err != nil {
		t.Fatal(err)
	}
	to := copyTo(t, from)
	r, _ := open(t, to, false)
	next := startWorker(t, r)
	c := store.ClaimRequest{Worker: next, Queues: []string{"q"}, Limit: 100, Token: store.NewToken()}
	if _, err := r.Claim(ctx, c); !errors.Is(err, store.ErrMoved) {
		t.Fatal(err)
	}
	if _, err := r.Enqueue(ctx, newTasks(1, "q")); !errors.Is(err, store.ErrMoved) ||
		!errors.Is(err, store.ErrNotCommitted) {
		t.Fatal(err)
	}
	if _, err := r.Check(ctx); !errors.Is(err, store.ErrMoved) {
		t.Fatal(err)
	}
	if n, err := r.Rebase(ctx, true); err != nil || n != 25 {
		t.Fatal(n, err)
	}
	if n, err := r.Rebase(ctx, false); err != nil || n != 25 {
		t.Fatal(n, err)
	}
	next = startWorker(t, r)
	c.Worker = next
	again, err := r.Claim(ctx, c)
	if err != nil || len(again) != 25 {
		t.Fatal(len(again), err)
	}
	if lost, err := r.Finish(ctx, completed(claimed[5:])); err != nil || len(lost) != 5 {
		t.Fatal("finishes from before the dump:", len(lost), err)
	}
	if list, err := r.List(ctx, store.Filter{States: []store.State{store.Completed}}); err != nil || len(list) != 25 {
		t.Fatal(len(list), err)
	}
	if lost, err := r.Finish(ctx, completed(again)); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	goRound(t, r, next, 10)
	if counts, err := r.Count(ctx); err != nil || len(counts) > 0 {
		t.Fatal(counts, err)
	}
}

func TestADumpThatComesFromTheFutureOfThisServerIsRefused(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	goRound(t, s, startWorker(t, s), 10)
	// As on a clone of the server that was made before the dump: it has the same identity.
	if _, err := pool.Exec(ctx, `update tusk.lane_position set done = '4000000000:4000000000:';
		update tusk.outcome set xid = '4000000000', finished_at = finished_at - interval '2 hours'`); err != nil {
		t.Fatal(err)
	}
	late, _ := open(t, pool.Config().ConnString(), false)
	if _, err := late.Check(ctx); !errors.Is(err, store.ErrMoved) {
		t.Fatal(err)
	}
	if _, err := late.Rebase(ctx, false); err != nil {
		t.Fatal(err)
	}
	if _, err := late.Check(ctx); err != nil {
		t.Fatal(err)
	}
	goRound(t, late, startWorker(t, late), 10)
	keep := store.Retention{Completed: time.Hour}
	if due, err := late.Due(ctx, keep, "", 100); err != nil || len(due.Tasks) != 10 {
		t.Errorf("%d tasks of before are handed to an archive, %v", len(due.Tasks), err)
	}
	if n, err := late.Prune(ctx, lead(t, late), keep, 100); err != nil || n != 10 {
		t.Errorf("%d tasks of before are pruned, though younger ones have ended, %v", n, err)
	}
}
