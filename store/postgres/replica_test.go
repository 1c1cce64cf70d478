package postgres_test

import (
	"bytes"
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

// A logical copy of a database has its rows, but not the values of its sequences.
func TestALogicalCopyIsRebasedWithItsNeedsAndRecords(t *testing.T) {
	ctx := context.Background()
	from := pgtest.DSN(t)
	s, pool := open(t, from, true)
	if _, err := pool.Exec(ctx,
		"do $$ begin for i in 1 .. 3000 loop perform pg_current_xact_id(); commit; end loop; end $$"); err != nil {
		t.Fatal(err)
	}
	startWorker(t, s)
	parent, child := newTasks(1, "q"), newTasks(1, "q")
	child[0].Needs = []store.Need{{Task: parent[0].ID}}
	for _, tasks := range [][]store.NewTask{parent, child} {
		if _, err := s.Enqueue(ctx, tasks); err != nil {
			t.Fatal(err)
		}
	}
	record := store.PutRecord{Record: store.Record{Kind: "k", Name: "n", Body: []byte("1")}}
	had, _, err := s.PutRecord(ctx, record)
	if err != nil {
		t.Fatal(err)
	}
	to := copyTo(t, from)
	r, copied := open(t, to, false)
	if _, err := copied.Exec(ctx, `do $$ declare n text; begin
		for n in select c.oid::regclass::text from pg_class c where relkind = 'S' and relnamespace = 'tusk'::regnamespace
		loop execute 'alter sequence ' || n || ' restart'; end loop; end $$`); err != nil {
		t.Fatal(err)
	}
	if n, err := r.Rebase(ctx, false); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	w := startWorker(t, r)
	claim := func(what string) []store.Task {
		t.Helper()
		got, err := r.Claim(ctx, store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 10, Token: store.NewToken()})
		if err != nil || len(got) != 1 {
			t.Fatalf("%s: %d are claimed, %v", what, len(got), err)
		}
		return got
	}
	finish(t, r, claim("the parent"))
	if _, err := r.Admit(ctx, lead(t, r), 100); err != nil {
		t.Fatal(err)
	}
	claim("the child")
	record.Record.Version = had
	if is, _, err := r.PutRecord(ctx, record); err != nil || is <= had {
		t.Errorf("a record of version %d has version %d after a change, %v", had, is, err)
	}
}

// copyTo copies a database into another server and returns its DSN.
func copyTo(t *testing.T, from string) (to string) {
	t.Helper()
	server, err := pgtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	to = server.Database(t)
	dump, err := exec.Command("pg_dump", "--no-owner", "-d", from).Output()
	if err != nil {
		t.Skipf("pg_dump: %v", err)
	}
	restore := exec.Command("psql", "-q", "-v", "ON_ERROR_STOP=1", "-d", to)
	restore.Stdin = bytes.NewReader(dump)
	if out, err := restore.CombinedOutput(); err != nil {
		t.Fatalf("psql: %v: %s", err, out)
	}
	return to
}

// PostgreSQL refuses to change a published table that has no replica identity.
func TestAPublicationOfAllTablesRefusesNothing(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	w := startWorker(t, s)
	if _, err := pool.Exec(ctx, "create publication p for all tables"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Enqueue(ctx, newTasks(4, "q")); err != nil {
		t.Fatal(err)
	}
	got := claimSome(t, s, w, 4)
	ends := completed(got)
	ends[2].State, ends[2].Error, ends[2].Delay = store.Retryable, "boom", time.Hour
	for _, end := range ends {
		if lost, err := s.Finish(ctx, []store.Outcome{end}); err != nil || len(lost) > 0 {
			t.Errorf("%v: %v, %v", end.State, lost, err)
		}
	}
	task := newTasks(1, "q")
	if _, err := s.Enqueue(ctx, task); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Edit(ctx, store.Edit{IDs: []store.ID{task[0].ID}, Change: store.Change{Op: store.Cancel}}); err != nil {
		t.Error(err)
	}
	if err := s.Maintain(ctx, lead(t, s)); err != nil {
		t.Error(err)
	}
	bare := number(t, pool, `select count(*) from pg_class c
		where c.relnamespace = 'tusk'::regnamespace and c.relkind in ('r', 'p') and c.relreplident <> 'f'
			and not exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary)`)
	if bare != 0 {
		t.Errorf("%d tables have neither a primary key nor another identity", bare)
	}
}
