package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
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
	claimed := claimSome(t, s, w, 10)
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
	refusesAll(t, to, claimed[5:])
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
	finish(t, r, again)
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

// refusesAll checks that a process that has just started writes nothing in any way. A low xid in the log of a restored
// dump would count as claimed, and the rebase as ended.
func refusesAll(t *testing.T, dsn string, claimed []store.Task) {
	t.Helper()
	ctx := t.Context()
	var s *postgres.Store
	var pool *pgxpool.Pool
	inTx := func(do func(store.Tx) error) error {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(ctx)
		in, err := s.Tx(tx)
		if err != nil {
			return err
		}
		return do(in)
	}
	candidate := store.Candidate{ID: newID(), Term: 1000, TTL: time.Minute}
	record := store.PutRecord{Record: store.Record{Kind: "k", Name: "n", Body: []byte("{}")}}
	for name, do := range map[string]func() error{
		"an enqueue in a transaction": func() error {
			return inTx(func(in store.Tx) error {
				_, err := in.Enqueue(ctx, newTasks(1, "q"))
				return err
			})
		},
		"a finish in a transaction": func() error {
			return inTx(func(in store.Tx) error {
				_, err := in.Finish(ctx, completed(claimed))
				return err
			})
		},
		"a candidate": func() error {
			_, err := s.Lead(ctx, candidate)
			return err
		},
		"an adopted term": func() error {
			_, err := postgres.AdoptAll(ctx, []*postgres.Store{s}, candidate)
			return err
		},
		"a record": func() error {
			_, _, err := s.PutRecord(ctx, record)
			return err
		},
		"records": func() error {
			_, err := s.UpdateRecords(ctx, 0, []store.PutRecord{record})
			return err
		},
		"an edit": func() error {
			_, err := s.Edit(ctx, store.Edit{IDs: []store.ID{claimed[0].ID}, Change: store.Change{Op: store.Cancel}})
			return err
		},
		"a letter": func() error {
			_, err := s.Deliver(ctx, newTasks(1, "q"))
			return err
		},
		"a restore": func() error {
			return s.Redeliver(ctx, newID(), nil)
		},
	} {
		s, pool = open(t, dsn, false)
		if err := do(); !errors.Is(err, store.ErrMoved) {
			t.Errorf("%s is not refused: %v", name, err)
		}
	}
	_, err := pool.Exec(ctx, "select tusk.enqueue('k')")
	var said *pgconn.PgError
	if !errors.As(err, &said) || said.Code != "55000" || !strings.Contains(said.Hint, "tusk db rebase") {
		t.Errorf("tusk.enqueue is not refused: %v", err)
	}
}

func TestAUsersTransactionWorksWithoutAnotherConnection(t *testing.T) {
	_, admin := fresh(t)
	ctx := t.Context()
	if _, err := admin.Exec(ctx, `create role alone login password 'alone' connection limit 1;
		grant all on all tables in schema tusk to alone; grant all on all sequences in schema tusk to alone;
		grant usage on schema tusk to alone`); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Exec(ctx, postgres.InFunctions("select tusk_fn.grant_rights()")); err != nil {
		t.Fatal(err)
	}
	config := admin.Config()
	config.ConnConfig.User, config.ConnConfig.Password, config.MaxConns = "alone", "alone", 1
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	s, err := postgres.New(ctx, pool, postgres.Options{Quiet: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	in := txOf(t, s, tx)
	s.SayItWasSeen()
	if _, err := in.Enqueue(ctx, newTasks(1, "q")); err != nil {
		t.Fatal(err)
	}
	if s.HasSpare() {
		t.Error("the call asked on another connection")
	}
	if s.MayWork() {
		t.Error("what the transaction's role may do counts as what the engine's may")
	}
	s.ForgetHome()
	if _, err := in.Enqueue(ctx, newTasks(1, "q")); err != nil {
		t.Fatal("a transaction that has enqueued before:", err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
}
