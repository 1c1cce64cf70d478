package ledgers_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

// servers starts servers for this test.
func servers(t *testing.T, n int) (all []*pgtest.Server, dsns []string) {
	t.Helper()
	for range n {
		s, err := pgtest.Start()
		if err != nil {
			t.Skipf("no PostgreSQL server of the test's own: %v", err)
		}
		t.Cleanup(s.Stop)
		all, dsns = append(all, s), append(dsns, s.DSN)
	}
	return all, dsns
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// awaitAway waits until a killed server is no longer asked. Its processes may still answer for a moment.
func awaitAway(t *testing.T, s *ledgers.Store) {
	t.Helper()
	eventually(t, "the death of the server is seen", func() bool {
		_, err := s.Count(context.Background())
		return err != nil && strings.Contains(err.Error(), "it is away")
	})
}

func TestAServerIsLostAndComesBack(t *testing.T) {
	all, dsns := servers(t, 2)
	if err := divide(4, dsns...); err != nil { // ledgers 0 and 1 on the first, 2 and 3 on the second
		t.Fatal(err)
	}
	s := open(t, dsns...)
	ctx := context.Background()
	w := worker(t, s)
	for range 40 {
		add(t, s, newTask(nil))
	}
	held := map[store.ID]store.Task{}
	for _, task := range claim(t, s, w, 40) {
		held[task.ID] = task
	}
	if len(held) != 40 {
		t.Fatalf("claimed %d of 40", len(held))
	}
	if err := all[1].Kill(); err != nil {
		t.Fatal(err)
	}

	// Plain tasks are stored in the other ledgers, and are claimed. Only the result of a call that
	// was in progress when the server died may be unknown.
	eventually(t, "the death of the server is seen", func() bool {
		_, err := s.Enqueue(ctx, []store.NewTask{newTask(func(n *store.NewTask) { n.Queue = "other" })})
		_, away := s.Count(ctx)
		return err == nil && away != nil
	})
	for range 40 {
		add(t, s, newTask(nil))
	}
	later := claim(t, s, w, 100)
	if len(later) != 40 {
		t.Errorf("claimed %d of the 40 tasks that came while a server was away", len(later))
	}
	// Outcomes for the server that is away wait; all others are written.
	var outcomes []store.Outcome
	for _, task := range held {
		outcomes = append(outcomes, store.Outcome{Task: &task, State: store.Completed, Attempt: task.Attempt})
	}
	lost, err := s.Finish(ctx, outcomes)
	wait := new(store.HeldError)
	if len(lost) > 0 || !errors.As(err, &wait) || !errors.Is(err, store.ErrUnavailable) ||
		len(wait.Tasks) == 0 || len(wait.Tasks) == 40 {
		t.Fatalf("%d lost, %v", len(lost), err)
	}
	// A question that all ledgers have to answer is not answered by some.
	if counts, err := s.Count(ctx); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("counted %+v, %v", counts, err)
	}
	stored, failed := 0, 0
	for _, key := range strings.Fields("a b c d e f g h i j") {
		switch _, err := s.Enqueue(ctx, []store.NewTask{newTask(func(n *store.NewTask) { n.Key = key })}); {
		case err == nil:
			stored++
		case errors.Is(err, store.ErrNotCommitted) && errors.Is(err, store.ErrUnavailable):
			failed++
		default:
			t.Errorf("key %s: %v", key, err)
		}
	}
	if stored == 0 || failed == 0 {
		t.Errorf("%d keys were stored, %d were not", stored, failed)
	}

	if err := all[1].Run(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other outcomes are written", func() bool {
		var rest []store.Outcome
		for _, id := range wait.Tasks {
			task := held[id]
			rest = append(rest, store.Outcome{Task: &task, State: store.Completed, Attempt: task.Attempt})
		}
		late, err := s.Finish(ctx, rest)
		lost = append(lost, late...)
		return err == nil || errors.As(err, &wait) && len(wait.Tasks) == 0
	})
	// A claim may be lost in a crash; its task is available again then.
	for _, id := range lost {
		tasks, err := s.List(ctx, store.Filter{IDs: []store.ID{id}})
		if err != nil || len(tasks) != 1 || tasks[0].State != store.Available {
			t.Errorf("an outcome was lost, and the task is %+v, %v", tasks, err)
		}
	}
	counts, err := s.Count(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range counts {
		want := map[store.State]int{store.Running: 40, store.Available: stored + len(lost)}[c.State]
		if c.Queue == "q" && c.Tasks != int64(want) {
			t.Errorf("%+v, with %d keys stored and %d claims lost", c, stored, len(lost))
		}
	}
}

// An outcome that needs a task on a server that is away waits; the others of its call do not. The same goes for
// outcomes whose ledgers are unknown.
func TestAnOutcomeThatWaitsForAServerHoldsUpNoOther(t *testing.T) {
	all, dsns := servers(t, 2)
	if err := divide(2, dsns...); err != nil {
		t.Fatal(err)
	}
	s, other := open(t, dsns...), open(t, dsns...)
	ctx := context.Background()
	parent := keyedInto(s, 1, func(n *store.NewTask) { n.Queue = "parents" })
	add(t, s, parent)
	w := worker(t, s)
	here := func() store.Task {
		add(t, s, keyedInto(s, 0, nil))
		return claim(t, s, w, 1)[0]
	}
	waits, goes, known := here(), here(), here()
	add(t, s, keyedInto(s, 1, nil))
	away := claim(t, s, w, 1)[0]
	known.Piece, away.Piece = 0, 0 // other has not claimed them
	if err := all[1].Kill(); err != nil {
		t.Fatal(err)
	}
	awaitAway(t, s)
	awaitAway(t, other)
	held := new(store.HeldError)
	needing := store.Outcome{Task: &waits, State: store.Pending, Attempt: 1,
		Needs: []store.Need{{Task: parent.ID, OnFailure: store.ContinueOnFailure}}}
	lost, err := s.Finish(ctx, []store.Outcome{needing, {Task: &goes, State: store.Completed, Attempt: 1}})
	if len(lost) > 0 || !errors.As(err, &held) || len(held.Tasks) != 1 || held.Tasks[0] != waits.ID {
		t.Fatalf("lost %v, %v", lost, err)
	}
	lost, err = other.Finish(ctx, []store.Outcome{{Task: &away, State: store.Completed, Attempt: 1},
		{Task: &known, State: store.Completed, Attempt: 1}})
	if len(lost) > 0 || !errors.As(err, &held) || len(held.Tasks) != 1 || held.Tasks[0] != away.ID {
		t.Fatalf("of those that nobody knows %v are lost, %v", lost, err)
	}
	if err := all[1].Run(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other outcome is written", func() bool {
		lost, err := s.Finish(ctx, []store.Outcome{needing})
		return err == nil && len(lost) == 0
	})
	want := map[store.ID]store.State{waits.ID: store.Pending, goes.ID: store.Completed, known.ID: store.Completed}
	for id, state := range want {
		if got := stateOf(t, s, id); got != state {
			t.Errorf("a task is %v, not %v", got, state)
		}
	}
}

func TestALeaderKeepsItsTermWhileHomeIsAway(t *testing.T) {
	all, dsns := servers(t, 2)
	if err := divide(2, dsns...); err != nil {
		t.Fatal(err)
	}
	s, other := open(t, dsns...), open(t, dsns...)
	ctx := context.Background()
	me, you := tusk.NewID(), tusk.NewID()
	l, err := s.Lead(ctx, store.Candidate{ID: me, TTL: time.Hour})
	if err != nil || l.Term == 0 {
		t.Fatalf("%+v, %v", l, err)
	}
	if err := all[0].Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the leader keeps its term", func() bool {
		kept, err := s.Lead(ctx, store.Candidate{ID: me, Term: l.Term, TTL: time.Hour})
		return err == nil && kept.Term == l.Term && !kept.Now.IsZero()
	})
	if _, err := s.Admit(ctx, l.Term, 10); err != nil {
		t.Errorf("a chore while home is away: %v", err)
	}
	if x, err := other.Lead(ctx, store.Candidate{ID: you, TTL: time.Hour}); err == nil {
		t.Errorf("somebody else was elected: %+v", x)
	}
	if err := all[0].Run(); err != nil {
		t.Fatal(err)
	}
	// Home comes back without the term, as after a failover.
	if err := all[0].Exec(ctx, "update tusk_0_of_2.leader set id = null, term = term - 1"); err != nil {
		t.Fatal(err)
	}
	var next store.Leadership
	eventually(t, "another process leads everywhere", func() bool {
		next, err = other.Lead(ctx, store.Candidate{ID: you, TTL: time.Hour})
		return err == nil && next.Term > l.Term
	})
	if _, err := other.Admit(ctx, next.Term, 10); err != nil {
		t.Errorf("a chore of the new leader: %v", err)
	}
	if _, err := s.Admit(ctx, l.Term, 10); !errors.Is(err, store.ErrNotLeader) {
		t.Errorf("a chore of the old leader: %v", err)
	}
}

func TestServersAreNamedWrongly(t *testing.T) {
	_, dsns := servers(t, 2)
	ctx := context.Background()
	s := open(t, dsns...)
	_, err := s.Enqueue(ctx, []store.NewTask{newTask(nil)})
	if !errors.Is(err, store.ErrSchemaMissing) || !errors.Is(err, store.ErrNotCommitted) {
		t.Errorf("an enqueue without ledgers: %v", err)
	}
	_, err = s.Migrate(ctx, -1)
	if !errors.Is(err, store.ErrSchemaMissing) || !strings.Contains(err.Error(), "--ledgers") {
		t.Errorf("a migration that does not know how many: %v", err)
	}
	if err := divide(2, dsns...); err != nil {
		t.Fatal(err)
	}
	if err := divide(1, dsns...); err == nil || !strings.Contains(err.Error(), "2 of them") {
		t.Errorf("fewer ledgers: %v", err)
	}
	half := open(t, dsns[0])
	_, err = half.Check(ctx)
	if err == nil || !strings.Contains(err.Error(), "tusk_1_of_2") || !strings.Contains(err.Error(), "name its server") {
		t.Errorf("a server is left out: %v", err)
	}
	if _, err := half.Migrate(ctx, -1); err == nil {
		t.Error("a ledger was made twice")
	}
	c, err := pgx.Connect(ctx, dsns[0])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	if _, err := c.Exec(ctx, "create schema tusk_1_of_2"); err != nil { // a copy
		t.Fatal(err)
	}
	if _, err := open(t, dsns...).Check(ctx); err == nil || !strings.Contains(err.Error(), "rename the schema") {
		t.Errorf("a ledger on two servers: %v", err)
	}
	_, err = ledgers.Open(ctx, dsns[0], dsns[1]+"&tusk_schema=other")
	if err == nil || !strings.Contains(err.Error(), "tusk_schema") {
		t.Errorf("two schemas: %v", err)
	}
}

func TestATransactionWritesInItsOwnDatabase(t *testing.T) {
	_, dsns := servers(t, 2)
	if err := divide(4, dsns...); err != nil {
		t.Fatal(err)
	}
	s := open(t, dsns...)
	ctx := context.Background()
	for _, dsn := range dsns {
		tx, in := beginFor(t, s, dsn)
		for range 10 {
			add(t, in, newTask(nil))
		}
		stored, refused := 0, 0
		for _, key := range strings.Fields("a b c d e f g h") {
			switch _, err := in.Enqueue(ctx, []store.NewTask{newTask(func(n *store.NewTask) { n.Key = key })}); {
			case err == nil:
				stored++
			case errors.Is(err, store.ErrUnsupported):
				refused++
			default:
				t.Fatal(err)
			}
		}
		if stored == 0 || refused == 0 {
			t.Errorf("%d keyed tasks were stored, %d refused", stored, refused)
		}
		if err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		w := worker(t, s)
		claimed := claim(t, s, w, 100)
		if len(claimed) != 10+stored {
			t.Errorf("claimed %d of %d", len(claimed), 10+stored)
		}
	}
	db, err := sql.Open("pgx", dsns[1])
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	in, err := s.Tx(tx)
	if err != nil {
		t.Fatal(err)
	}
	id := add(t, in, newTask(nil))[0].ID
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if tasks, err := s.List(ctx, store.Filter{IDs: []store.ID{id}}); err != nil || len(tasks) != 0 {
		t.Errorf("after a rollback: %+v, %v", tasks, err)
	}
	if _, err := s.Tx(db); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("no transaction: %v", err)
	}
}
