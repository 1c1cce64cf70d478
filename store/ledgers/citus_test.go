package ledgers_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
	"github.com/tuskqueue/tusk/store/postgres"
)

// Statements go to another node of a cluster as text. In this test, the functions that send them
// there run them in the same database.
func TestATransactionOverTextsWritesWhatItIsGiven(t *testing.T) {
	one := three.DSN(t)
	ctx := context.Background()
	e, err := postgres.Open(ctx, one+"&tusk_schema=tusk_0_of_3")
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	c, err := pgx.Connect(ctx, one)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	// This database stands for all nodes.
	functions := append(ledgers.CitusFunctions(),
		"create or replace function tusk_net.need_node(_slot int) returns void language sql as ''")
	for _, text := range functions {
		if _, err := c.Exec(ctx, text); err != nil {
			t.Fatal(err)
		}
	}
	in := func(do func(tx store.Tx)) {
		t.Helper()
		if err := pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error { do(ledgers.Over(e, tx)); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	hostile := `it's $1, "quoted", {b,r}, \' and \\ and NULL;` + "\n-- no remark"
	plain := newTask(func(n *store.NewTask) {
		n.Args, n.Tags, n.Settings = []byte(`{"a":"\\ $2 '"}`), []string{hostile, "b"}, []byte{0, 1, '\\', 255}
	})
	full := newTask(func(n *store.NewTask) {
		n.Tenant, n.Key, n.Workflow, n.Priority = hostile, hostile, tusk.NewID(), -3
		n.RunAt, n.ExpiresIn = time.Now().Add(-time.Hour), time.Hour
	})
	child := newTask(needs(store.CancelOnFailure, plain.ID))
	in(func(tx store.Tx) { add(t, tx, plain) })
	in(func(tx store.Tx) {
		if r := add(t, tx, full, child); r[0].Result != store.Added || r[1].Result != store.Added {
			t.Errorf("%+v", r)
		}
		again := full
		again.ID = tusk.NewID()
		if r := add(t, tx, again)[0]; r.Result != store.Skipped || r.ID != full.ID {
			t.Errorf("the key again: %+v", r)
		}
		keyed := newTask(func(n *store.NewTask) { n.Key, n.Delay = hostile+"!", 0 })
		keyed.Priority = 9
		if r := add(t, tx, keyed)[0]; r.Result != store.Added {
			t.Errorf("a key alone: %+v", r)
		}
	})
	tasks, err := e.List(ctx, store.Filter{IDs: []store.ID{plain.ID, full.ID, child.ID}, Detail: true})
	if err != nil || len(tasks) != 3 {
		t.Fatalf("%+v, %v", tasks, err)
	}
	for _, got := range tasks {
		switch got.ID {
		case plain.ID:
			if string(got.Args) != string(plain.Args) || got.Tags[0] != hostile ||
				string(got.Settings) != string(plain.Settings) {
				t.Errorf("%+v", got)
			}
		case full.ID:
			if got.Tenant != hostile || got.Key != hostile || got.Workflow != full.Workflow || got.Priority != -3 ||
				got.ExpiresAt.IsZero() {
				t.Errorf("%+v", got)
			}
		case child.ID:
			if got.State != store.Pending {
				t.Errorf("%+v", got)
			}
		}
	}
	w := worker(t, e)
	claimed := claim(t, e, w, 2)
	byID := map[store.ID]*store.Task{}
	for i := range claimed {
		byID[claimed[i].ID] = &claimed[i]
	}
	next := newTask(func(n *store.NewTask) { n.Args = []byte(`"next"`) })
	in(func(tx store.Tx) {
		finish(t, tx, store.Outcome{Task: byID[plain.ID], State: store.Completed, Attempt: 1, Then: []store.NewTask{next},
			Note: &store.Note{Output: []byte(`{"it's":1}`), Logs: []store.LogLine{{Text: hostile}}}})
		finish(t, tx, store.Outcome{Task: byID[full.ID], State: store.Discarded, Attempt: 1,
			Reason: hostile, Error: hostile, Fingerprint: "f"})
		lost, err := tx.Finish(ctx, []store.Outcome{{Task: byID[full.ID], State: store.Completed, Attempt: 1}})
		if err != nil || len(lost) != 1 {
			t.Errorf("an outcome twice: lost %v, %v", lost, err)
		}
	})
	for id, want := range map[store.ID]store.State{
		plain.ID: store.Completed, full.ID: store.Discarded, child.ID: store.Available, next.ID: store.Available,
	} {
		if got := stateOf(t, e, id); got != want {
			t.Errorf("task %v is %v, want %v", id, got, want)
		}
	}
	tasks, err = e.List(ctx, store.Filter{IDs: []store.ID{full.ID, plain.ID}, Detail: true})
	if err != nil || len(tasks) != 2 {
		t.Fatalf("%+v, %v", tasks, err)
	}
	for _, got := range tasks {
		if got.ID == full.ID && (got.Reason != hostile || got.Detail.Attempts[0].Error != hostile) {
			t.Errorf("%+v", got)
		}
	}
	gone := newTask(nil)
	undo := errors.New("undo")
	err = pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error { add(t, ledgers.Over(e, tx), gone); return undo })
	if !errors.Is(err, undo) || stateOf(t, e, gone.ID) != 0 {
		t.Errorf("after a rollback: %v, %v", stateOf(t, e, gone.ID), err)
	}
}

func TestCitusLedgersAreLocalToANode(t *testing.T) {
	s := openCitus(t, citus(t).queue(t, 4))
	if _, err := s.Check(context.Background()); err != nil {
		t.Error(err) // it fails if a schema was made on every node and is therefore found twice
	}
	all, err := s.Places(context.Background())
	on := map[string]bool{}
	for _, p := range all {
		on[p.Server] = true
	}
	if err != nil || len(all) != 4 || len(on) < 2 {
		t.Errorf("%+v, %v", all, err)
	}
}

// A user's row and the tasks of its transaction are stored together or not at all, whatever
// nodes they are on.
func TestCitusCommitsTasksWithTheUsersRows(t *testing.T) {
	nodes := citus(t)
	s := openCitus(t, nodes.queue(t, 4))
	ctx := context.Background()
	c, err := pgx.Connect(ctx, nodes.dsns[0])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	for _, text := range []string{
		"drop table if exists tusk_test_order", "create table tusk_test_order (id uuid primary key)",
		"select create_distributed_table('tusk_test_order', 'id')",
	} {
		if _, err := c.Exec(ctx, text); err != nil {
			t.Fatal(err)
		}
	}
	undo := errors.New("undo")
	var kept, undone []store.ID
	for i := range 40 {
		n := newTask(func(n *store.NewTask) { n.Queue = "citus" })
		if i%2 == 0 {
			n.Key = n.ID.String()
		}
		err := pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
			in, err := s.Tx(tx)
			if err != nil {
				return err
			}
			if _, err := in.Enqueue(ctx, []store.NewTask{n}); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, "insert into tusk_test_order values ($1)", n.ID.String()); err != nil {
				return err
			}
			if i%4 > 1 {
				return undo
			}
			return nil
		})
		switch {
		case err == nil:
			kept = append(kept, n.ID)
		case errors.Is(err, undo):
			undone = append(undone, n.ID)
		default:
			t.Fatal(err)
		}
	}
	for _, id := range kept {
		if stateOf(t, s, id) != store.Available {
			t.Errorf("task %v was lost", id)
		}
	}
	for _, id := range undone {
		if stateOf(t, s, id) != 0 {
			t.Errorf("task %v was stored", id)
		}
	}
	var rows int
	if err := c.QueryRow(ctx, "select count(*) from tusk_test_order").Scan(&rows); err != nil || rows != len(kept) {
		t.Errorf("%d rows, %d tasks, %v", rows, len(kept), err)
	}
}
