package ledgers_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

// Two servers act like two nodes of Citus: each prepares its part of a transaction, and one
// commits before the other.
func TestAChildThatIsThereBeforeItsParentWaits(t *testing.T) {
	var dsns []string
	for range 2 {
		server, err := pgtest.Start("max_prepared_transactions=10")
		if err != nil {
			t.Skipf("no PostgreSQL server of the test's own: %v", err)
		}
		t.Cleanup(server.Stop)
		dsns = append(dsns, server.DSN)
	}
	if err := divide(2, dsns...); err != nil {
		t.Fatal(err)
	}
	open := func() *ledgers.Store {
		s := open(t, dsns...)
		s.ComeApart()
		return s
	}
	childBeforeParent(t, open(), open(), dsns)
}

func TestCitusChildThatIsThereBeforeItsParentWaits(t *testing.T) {
	c := citus(t)
	dsn := c.queue(t, 2)
	childBeforeParent(t, openCitus(t, dsn), openCitus(t, dsn), c.dsns[1:])
}

// childBeforeParent enqueues a task, and a task on another server that needs it, in one transaction,
// which commits on the child's server first. Meanwhile other prepared transactions come and go.
func childBeforeParent(t *testing.T, s, leader *ledgers.Store, dsns []string) {
	ctx := context.Background()
	term, w := lead(t, leader), worker(t, s)
	admit := func() {
		t.Helper()
		for range 3 {
			end := somebodyPrepares(t, dsns)
			if _, err := leader.Admit(ctx, term, 1000); err != nil {
				t.Fatal(err)
			}
			end()
		}
	}
	for i, kept := range []bool{true, false} {
		for j, policy := range []store.OnFailure{store.CancelOnFailure, store.ContinueOnFailure, store.WaitOnFailure} {
			parent := newTask(nil)
			parent.Key = parent.ID.String()
			child := newTask(func(n *store.NewTask) { n.Queue = "children"; needs(policy, parent.ID)(n) })
			for child.Key = fmt.Sprint(i, j); ledgers.PlaceOf(s, &child) == ledgers.PlaceOf(s, &parent); {
				child.Key += "0"
			}
			parts, err := ledgers.EnqueueInParts(ctx, s, []store.NewTask{parent, child})
			rollBack := func() {
				for _, part := range parts {
					_ = part.Rollback(ctx) // returns its connection to the pool
				}
			}
			defer rollBack()
			if err != nil {
				t.Fatal(err)
			}
			end := func(task store.NewTask, how string) {
				t.Helper()
				c := parts[ledgers.PlaceOf(s, &task)].Conn()
				if _, err := c.Exec(ctx, fmt.Sprintf("%s '%v'", how, task.ID)); err != nil {
					t.Fatal(err)
				}
			}
			end(parent, "prepare transaction")
			end(child, "prepare transaction")
			admit()
			end(child, "commit prepared")
			admit()
			if got := stateOf(t, s, child.ID); got != store.Pending {
				t.Fatalf("policy %v: the child is %v while its parent is being committed", policy, got)
			}
			late := newTask(func(n *store.NewTask) { n.Queue = "children"; needs(policy, parent.ID)(n) })
			add(t, s, late)
			admit()
			if got := stateOf(t, s, late.ID); got != store.Pending {
				t.Errorf("policy %v: a child that is enqueued meanwhile is %v", policy, got)
			}
			want := store.Available
			if kept {
				end(parent, "commit prepared")
				admit()
				for _, id := range []store.ID{child.ID, late.ID} {
					if got := stateOf(t, s, id); got != store.Pending {
						t.Fatalf("policy %v: a child is %v, and its parent has not run", policy, got)
					}
				}
				task := claim(t, s, w, 1)[0]
				finish(t, s, store.Outcome{Task: &task, State: store.Completed, Attempt: task.Attempt})
			} else { // only manual recovery does this
				end(parent, "rollback prepared")
				want = map[store.OnFailure]store.State{store.CancelOnFailure: store.Cancelled,
					store.ContinueOnFailure: store.Available, store.WaitOnFailure: store.Cancelled}[policy]
			}
			for _, id := range []store.ID{child.ID, late.ID} {
				eventually(t, fmt.Sprintf("policy %v: the child is %v", policy, want), func() bool {
					admit()
					return stateOf(t, s, id) == want
				})
			}
			rollBack()
		}
	}
}

// somebodyPrepares prepares a transaction on each server, which stays prepared until end is called.
func somebodyPrepares(t *testing.T, dsns []string) (end func()) {
	t.Helper()
	name := store.NewToken()
	on := func(how string) {
		t.Helper()
		for i, dsn := range dsns {
			c, err := pgx.Connect(t.Context(), dsn)
			if err == nil {
				_, err = c.Exec(t.Context(), fmt.Sprintf("%s '%x %d'", how, name, i))
				err = errors.Join(err, c.Close(t.Context()))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	on("begin; select pg_current_xact_id(); prepare transaction")
	return func() { t.Helper(); on("rollback prepared") }
}
