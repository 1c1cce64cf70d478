package ledgers_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
)

// One transaction stores a parent, and then its children, in calls of their own. They wait for it in every ledger.
func TestAChildWaitsForAParentOfAnEarlierCallOfItsTransaction(t *testing.T) {
	dsn := three.DSN(t)
	s, leader := open(t, dsn), open(t, dsn)
	term := lead(t, leader)
	tx, in := beginFor(t, s, dsn)
	parent := keyedInto(s, 0, nil)
	add(t, in, parent)
	var children []store.NewTask
	for no := range 3 {
		again := anew(t, s, tx)
		children = append(children, keyedInto(s, no, func(n *store.NewTask) {
			n.Queue = "children"
			needs(store.ContinueOnFailure, parent.ID)(n)
		}))
		add(t, again, children[no])
	}
	pass := func() {
		t.Helper()
		if _, err := leader.Admit(t.Context(), term, 100); err != nil {
			t.Fatal(err)
		}
	}
	pass() // it does not see the parent yet
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	states := func() (all [3]store.State) {
		for no := range all {
			all[no] = stateOf(t, s, children[no].ID)
		}
		return all
	}
	for range 3 {
		pass()
		if got := states(); got != [3]store.State{store.Pending, store.Pending, store.Pending} {
			t.Fatalf("while the parent waits, the children are %v", got)
		}
	}
	task := claim(t, s, worker(t, s), 1)[0]
	finish(t, s, store.Outcome{Task: &task, State: store.Completed, Attempt: 1})
	eventually(t, "the children may run", func() bool {
		pass()
		return states() == [3]store.State{store.Available, store.Available, store.Available}
	})
}

// anew returns the engine's view of a transaction for another call.
func anew(t *testing.T, s *ledgers.Store, tx pgx.Tx) store.Tx {
	t.Helper()
	in, err := s.Tx(tx)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// The same with tasks that an outcome brings, and with a parent that a savepoint has undone: nobody waits for that.
func TestAnOutcomeOfATransactionNeedsWhatThatHasStored(t *testing.T) {
	dsn := three.DSN(t)
	s, leader := open(t, dsn), open(t, dsn)
	term := lead(t, leader)
	for _, undone := range []bool{false, true} {
		add(t, s, keyedInto(s, 1, nil))
		w := worker(t, s)
		task := claim(t, s, w, 1)[0]
		tx, _ := beginFor(t, s, dsn)
		part, err := tx.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		in := anew(t, s, part)
		parent := keyedInto(s, 0, func(n *store.NewTask) { n.Queue = "parents" })
		add(t, in, parent)
		child := newTask(func(n *store.NewTask) {
			n.Queue = "children"
			needs(store.ContinueOnFailure, parent.ID)(n)
		})
		if undone {
			if err := part.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		in = anew(t, s, tx)
		finish(t, in, store.Outcome{Task: &task, State: store.Completed, Attempt: 1, Then: []store.NewTask{child}})
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := map[bool]store.State{false: store.Pending, true: store.Available}[undone]
		pass := func() store.State {
			if _, err := leader.Admit(t.Context(), term, 100); err != nil {
				t.Fatal(err)
			}
			return stateOf(t, s, child.ID)
		}
		eventually(t, "the child is "+want.String(), func() bool { return pass() == want })
		for range 3 {
			if got := pass(); got != want {
				t.Fatalf("undone %v: the child is %v", undone, got)
			}
		}
	}
}

// A plain task may live anywhere, so it goes to a ledger in the transaction's database, whether it needs a task of an
// earlier call or one of another server.
func TestAPlainChildGoesToALedgerOfItsTransaction(t *testing.T) {
	_, dsns := servers(t, 2)
	if err := divide(4, dsns...); err != nil {
		t.Fatal(err)
	}
	s := open(t, dsns...)
	elsewhere := keyedInto(s, 0, nil)
	add(t, s, elsewhere)
	for range 10 {
		tx, in := beginFor(t, s, dsns[1])
		parent := add(t, in, newTask(nil))[0].ID
		add(t, anew(t, s, tx), newTask(needs(store.CancelOnFailure, parent)))
		add(t, anew(t, s, tx), newTask(needs(store.CancelOnFailure, elsewhere.ID)))
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
