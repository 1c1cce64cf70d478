package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// program installs the functions of another program beside the existing ones.
func program(t *testing.T, pool *pgxpool.Pool, mark string) *postgres.Store {
	t.Helper()
	s, err := postgres.NewProgram(pool, mark)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if _, err := s.Migrate(t.Context(), -1); err != nil {
		t.Fatal(err)
	}
	return s
}

func claimSome(t testing.TB, s *postgres.Store, worker store.ID, n int) []store.Task {
	t.Helper()
	tasks, err := s.Claim(context.Background(), store.ClaimRequest{Worker: worker, Queues: []string{"q"}, Limit: n,
		Token: store.NewToken()})
	if err != nil || len(tasks) != n {
		t.Fatalf("claimed %d of %d: %v", len(tasks), n, err)
	}
	return tasks
}

// Two programs with functions of their own work on the same tasks. The functions of one are removed after nobody
// has run it for long.
func TestFunctionsGoWhenNoProgramCallsThem(t *testing.T) {
	s, pool := fresh(t)
	ctx := t.Context()
	other := program(t, pool, "of another build")
	w, theirs := startWorker(t, s), startWorker(t, other)
	tasks := newTasks(20, "q")
	if _, err := s.Enqueue(ctx, tasks); err != nil {
		t.Fatal(err)
	}
	mine := claimSome(t, s, w, 10)
	for _, task := range claimSome(t, other, theirs, 10) {
		finish(t, s, []store.Task{task})
	}
	finish(t, other, mine)
	if _, err := s.Migrate(ctx, -1); err != nil { // users call the functions of the program that migrated last
		t.Fatal(err)
	}
	term := lead(t, s)
	installed := func() int64 {
		t.Helper()
		if err := s.Maintain(ctx, term); err != nil {
			t.Fatal(err)
		}
		return number(t, pool, "select count(*) from pg_namespace n join tusk.program p on p.name = n.nspname")
	}
	if n := installed(); n != 2 {
		t.Fatalf("functions of %d programs, want 2", n)
	}
	age := func() {
		if _, err := pool.Exec(ctx, "update tusk.program set seen_at = seen_at - $1::interval",
			postgres.DropAfter); err != nil {
			t.Fatal(err)
		}
	}
	age()
	if n := installed(); n != 2 {
		t.Fatalf("functions of %d programs, want those of a living worker, too", n)
	}
	if _, err := other.Extend(ctx, store.Beat{Worker: store.Worker{ID: theirs}}); err != nil { // it signs off
		t.Fatal(err)
	}
	producer, err := postgres.NewProgram(pool, "of another build") // a producer has no worker
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	if _, err := producer.Enqueue(ctx, newTasks(1, "q")); err != nil {
		t.Fatal(err)
	}
	if n := installed(); n != 2 {
		t.Fatalf("functions of %d programs, want those of a producer, too", n)
	}
	for name, call := range map[string]func(s *postgres.Store) error{
		"reads":  func(s *postgres.Store) error { _, err := s.Count(ctx); return err },
		"lists":  func(s *postgres.Store) error { _, err := s.Records(ctx, store.RecordFilter{Kind: "k"}); return err },
		"edits":  func(s *postgres.Store) error { _, err := s.Edit(ctx, store.Edit{IDs: []store.ID{newID()}}); return err },
		"writes": func(s *postgres.Store) error { return enqueueTx(ctx, s, pool) },
	} {
		age()
		user, err := postgres.NewProgram(pool, "of another build")
		if err != nil {
			t.Fatal(err)
		}
		defer user.Close()
		if err := call(user); err != nil {
			t.Fatal(err)
		}
		// In a user's transaction, this is recorded in the background.
		eventually(t, "the functions of a program that only "+name+" are kept", func() bool {
			return number(t, pool, `select count(*) from tusk.program
				where name = '`+user.FunctionSchema()+`' and seen_at > now() - interval '1 minute'`) == 1
		})
	}
	age()
	if _, err := pool.Exec(ctx, "create view users_own as select * from "+other.FunctionSchema()+".tasks"); err != nil {
		t.Fatal(err)
	}
	if n := installed(); n != 2 {
		t.Fatalf("a view of the user's was dropped")
	}
	if _, err := pool.Exec(ctx, "drop view users_own"); err != nil {
		t.Fatal(err)
	}
	if n := installed(); n != 1 {
		t.Fatalf("functions of %d programs, want those of this one alone", n)
	}
	if n := number(t, pool, "select count(*) from pg_namespace where nspname like 'tusk\\_f%'"); n != 1 {
		t.Errorf("%d schemas of functions are left", n)
	}
	if _, err := other.Count(ctx); !errors.Is(err, store.ErrSchemaMissing) ||
		!strings.Contains(err.Error(), "tusk migrate up") {
		t.Errorf("a program without its functions: %v", err)
	}
	if _, err := other.Migrate(ctx, -1); err != nil {
		t.Fatal(err)
	}
	goRound(t, other, startWorker(t, other), 10)
}

// enqueueTx enqueues a task in a transaction of its own.
func enqueueTx(ctx context.Context, s *postgres.Store, pool *pgxpool.Pool) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		in, err := s.Tx(tx)
		if err != nil {
			return err
		}
		_, err = in.Enqueue(ctx, newTasks(1, "q"))
		return err
	})
}
