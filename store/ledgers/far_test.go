package ledgers_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
)

func needs(policy store.OnFailure, ids ...store.ID) func(*store.NewTask) {
	return func(n *store.NewTask) {
		for _, id := range ids {
			n.Needs = append(n.Needs, store.Need{Task: id, OnFailure: policy})
		}
	}
}

// keyedApart makes a task that lives in another of three ledgers than the task from.
func keyedApart(t *testing.T, s *ledgers.Store, from store.ID, change func(*store.NewTask)) store.NewTask {
	t.Helper()
	for range 1000 {
		n := newTask(change)
		n.Key = n.ID.String()
		if at := ledgers.PlaceOf(s, &n); at != ledgers.Where(t, s, from) {
			return n
		}
	}
	t.Fatal("all keys name one ledger")
	return store.NewTask{}
}

func stateOf(t *testing.T, s store.Store, id store.ID) store.State {
	t.Helper()
	tasks, err := s.List(context.Background(), store.Filter{IDs: []store.ID{id}})
	if err != nil {
		t.Fatal(err)
	}
	if len(tasks) == 0 {
		return 0
	}
	return tasks[0].State
}

func lead(t *testing.T, s store.Store) int64 { return leader(t, s).Term }

// leader returns a candidate that leads.
func leader(t *testing.T, s store.Store) store.Candidate {
	t.Helper()
	me := store.Candidate{ID: tusk.NewID(), TTL: time.Hour}
	l, err := s.Lead(context.Background(), me)
	if err != nil || l.Term == 0 {
		t.Fatalf("%+v, %v", l, err)
	}
	me.Term = l.Term
	return me
}

// finisher is a store, or a transaction.
type finisher interface {
	Finish(ctx context.Context, outcomes []store.Outcome) ([]store.ID, error)
}

func finish(t *testing.T, s finisher, o store.Outcome) {
	t.Helper()
	lost, err := s.Finish(context.Background(), []store.Outcome{o})
	if err != nil || len(lost) > 0 {
		t.Fatalf("lost %v, %v", lost, err)
	}
}

// The leader does not know of a need. It asks.
func TestNeedsAcrossLedgersAreMetByTheLeader(t *testing.T) {
	dsn := three.DSN(t)
	s, other, leader := open(t, dsn), open(t, dsn), open(t, dsn)
	ctx := context.Background()
	term := lead(t, leader)
	for _, end := range []store.State{store.Completed, store.Discarded, store.Cancelled} {
		parent := add(t, s, newTask(nil))[0].ID
		var children []store.NewTask
		for _, policy := range []store.OnFailure{store.CancelOnFailure, store.ContinueOnFailure, store.WaitOnFailure} {
			children = append(children, keyedApart(t, s, parent, func(n *store.NewTask) {
				n.Queue, n.Kind = "children", fmt.Sprint(policy)
				needs(policy, parent)(n)
			}))
		}
		add(t, s, children...)
		for i := range children {
			if got := stateOf(t, s, children[i].ID); got != store.Pending {
				t.Fatalf("a child is %v before its parent has ended", got)
			}
		}
		task := claim(t, other, worker(t, other), 1)[0]
		finish(t, other, store.Outcome{Task: &task, State: end, Attempt: task.Attempt, Reason: "x"})
		// Nobody deletes the parent before its children have heard of its end.
		keep := store.Retention{Completed: time.Nanosecond, Cancelled: time.Nanosecond, Discarded: time.Nanosecond}
		if _, err := leader.Prune(ctx, term, keep, 1000); err != nil {
			t.Fatal(err)
		}
		want := []store.State{store.Available, store.Available, store.Available}
		if end != store.Completed {
			want = []store.State{store.Cancelled, store.Available, store.Cancelled} // nothing is left to be retried
		}
		for i := range children {
			eventually(t, fmt.Sprintf("the parent was %v, child %d is %v", end, i, want[i]), func() bool {
				if _, err := leader.Admit(ctx, term, 1000); err != nil {
					t.Fatal(err)
				}
				return stateOf(t, s, children[i].ID) == want[i]
			})
		}
		if want[0] == store.Cancelled {
			tasks, err := s.List(ctx, store.Filter{IDs: []store.ID{children[0].ID}})
			if err != nil || !strings.Contains(tasks[0].Reason, parent.String()) {
				t.Errorf("the reason does not name the parent, which was %v: %+v, %v", end, tasks, err)
			}
		}
	}
}

// The leader asks for a task that was announced to its child's ledger but is not stored yet. It does
// not take a task that it cannot find for deleted.
func TestAnAnnouncedNeedIsNotTakenForGone(t *testing.T) {
	dsn := three.DSN(t)
	s, leader := open(t, dsn), open(t, dsn)
	ctx := context.Background()
	term := lead(t, leader)
	parent := newTask(nil)
	parent.Key = parent.ID.String()
	child := newTask(needs(store.ContinueOnFailure, parent.ID))
	for child.Key = "0"; ledgers.PlaceOf(s, &child) == ledgers.PlaceOf(s, &parent); {
		child.Key += "0"
	}
	err := ledgers.EnqueueAfter(ctx, s, []store.NewTask{parent, child}, func() error {
		_, err := leader.Admit(ctx, term, 1000)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := leader.Admit(ctx, term, 1000); err != nil {
			t.Fatal(err)
		}
		if got := stateOf(t, s, child.ID); got != store.Pending {
			t.Fatalf("the child is %v, and what it needs %v", got, stateOf(t, s, parent.ID))
		}
	}
	task := claim(t, s, worker(t, s), 1)[0]
	finish(t, s, store.Outcome{Task: &task, State: store.Discarded, Attempt: task.Attempt, Reason: "x"})
	eventually(t, "the child may run", func() bool {
		if _, err := leader.Admit(ctx, term, 1000); err != nil {
			t.Fatal(err)
		}
		return stateOf(t, s, child.ID) == store.Available
	})
}

// A task that an outcome brings, and that has to live elsewhere, is stored with the outcome, even if
// it cannot be delivered at once.
func TestAKeyedTaskComesWithAnOutcomeOfAnotherLedger(t *testing.T) {
	s := open(t, three.DSN(t))
	ctx := context.Background()
	w := worker(t, s)
	for round := range 6 {
		parent := add(t, s, newTask(nil))[0].ID
		task := claim(t, s, w, 1)[0]
		child := keyedApart(t, s, parent, func(n *store.NewTask) { n.Queue = "children" })
		o := store.Outcome{Task: &task, State: store.Completed, Attempt: task.Attempt, Then: []store.NewTask{child}}
		if round%2 == 0 { // the task waits for the child that it spawns
			o.State, o.Needs = store.Pending, []store.Need{{Task: child.ID, OnFailure: store.ContinueOnFailure}}
		}
		finish(t, s, o)
		if got := stateOf(t, s, child.ID); got != store.Available {
			t.Fatalf("round %d: the child is %v", round, got)
		}
		r := store.ClaimRequest{Worker: w, Queues: []string{"children"}, Limit: 1, Token: store.NewToken()}
		got, err := s.Claim(ctx, r)
		if err != nil || len(got) != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
		finish(t, s, store.Outcome{Task: &got[0], State: store.Completed, Attempt: 1})
		if round%2 == 0 {
			again := claim(t, s, w, 1)
			if len(again) != 1 || again[0].ID != parent {
				t.Fatalf("the parent does not go on: %+v", again)
			}
			finish(t, s, store.Outcome{Task: &again[0], State: store.Completed, Attempt: 1})
		}
	}
	if counts, err := s.Count(ctx); err != nil || len(counts) > 0 {
		t.Errorf("left over: %+v, %v", counts, err)
	}
}

// A letter to a server that is away waits for it, and its task is stored once.
func TestALetterWaitsForItsServer(t *testing.T) {
	all, dsns := servers(t, 2)
	if err := divide(2, dsns...); err != nil {
		t.Fatal(err)
	}
	s := open(t, dsns...)
	ctx := context.Background()
	w, term := worker(t, s), lead(t, s)
	if err := all[1].Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the death of the server is seen", func() bool {
		_, err := s.Count(ctx)
		return errors.Is(err, store.ErrUnavailable)
	})
	add(t, s, newTask(nil), newTask(nil))
	tasks := claim(t, s, w, 2)
	var children []store.ID
	for i := range tasks {
		child := keyedApartOf(t, s, 0)
		children = append(children, child.ID)
		finish(t, s, store.Outcome{Task: &tasks[i], State: store.Completed, Attempt: 1, Then: []store.NewTask{child}})
	}
	record := store.Record{Kind: "k", Name: "n", Body: []byte("{}")}
	late := keyedApartOf(t, s, 0)
	_, _, err := s.PutRecord(ctx, store.PutRecord{Record: record, Tasks: []store.NewTask{late}})
	if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrNotCommitted) {
		t.Errorf("a record with a task of a server that is away: %v", err)
	}
	children = append(children, late.ID)
	if err := all[1].Run(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the letters are delivered", func() bool {
		time.Sleep(50 * time.Millisecond)
		_, err := s.Admit(ctx, term, 100)
		counts, failed := s.Count(ctx)
		return err == nil && failed == nil && len(counts) == 1 && counts[0].Queue == "q" && counts[0].Tasks == 3
	})
	for _, id := range children {
		if got := stateOf(t, s, id); got != store.Available {
			t.Errorf("a task that came by letter is %v", got)
		}
	}
}

func keyedApartOf(t *testing.T, s *ledgers.Store, no int) store.NewTask {
	t.Helper()
	for {
		n := newTask(nil)
		if n.Key = n.ID.String(); ledgers.PlaceOf(s, &n) != no {
			return n
		}
	}
}

func TestARecordBringsTasksThatLiveElsewhere(t *testing.T) {
	s := open(t, three.DSN(t))
	ctx := context.Background()
	for _, key := range strings.Fields("a b c d e f g h") {
		put := store.PutRecord{
			Record: store.Record{Kind: "k", Name: key, Body: []byte("{}")},
			Tasks:  []store.NewTask{newTask(func(n *store.NewTask) { n.Key = key })},
		}
		version, results, err := s.PutRecord(ctx, put)
		if err != nil || len(results) != 1 || results[0].Result != store.Added || results[0].ID != put.Tasks[0].ID {
			t.Fatalf("%+v, %v", results, err)
		}
		again := store.PutRecord{Record: put.Record, Tasks: []store.NewTask{newTask(func(n *store.NewTask) { n.Key = key })}}
		again.Record.Version = version
		updated, err := s.UpdateRecords(ctx, 0, []store.PutRecord{again})
		if err != nil || len(updated[0].Enqueued) != 1 || updated[0].Enqueued[0].Result != store.Skipped ||
			updated[0].Enqueued[0].ID != put.Tasks[0].ID {
			t.Fatalf("%+v, %v", updated, err)
		}
	}
	if tasks, err := s.List(ctx, store.Filter{}); err != nil || len(tasks) != 8 {
		t.Errorf("%d tasks, %v", len(tasks), err)
	}
	tick := newTask(func(n *store.NewTask) { n.Key = store.ScheduleKeys + "nightly" })
	nightly := store.Record{Kind: "schedule", Name: "nightly", Body: []byte("{}")}
	if _, _, err := s.PutRecord(ctx, store.PutRecord{Record: nightly, Tasks: []store.NewTask{tick}}); err != nil {
		t.Errorf("a schedule's task: %v", err)
	}
	byHand := newTask(func(n *store.NewTask) { n.Key = tick.Key })
	if r := add(t, s, byHand)[0]; r.Result != store.Skipped || r.ID != tick.ID {
		t.Errorf("a schedule's task by hand: %+v", r)
	}
}

// The answer to an enqueue is lost with its server, before the commit and after it. The call
// succeeds all the same, and each task is stored once.
func TestAnEnqueueWhoseServerFallsSilentIsStoredOnce(t *testing.T) {
	all, dsns := servers(t, 2)
	if err := divide(2, dsns...); err != nil {
		t.Fatal(err)
	}
	s := open(t, dsns...)
	ctx := context.Background()
	term := lead(t, s)
	stored, err := ledgers.Doubt(ctx, s, 1, true)
	if err != nil {
		t.Fatal(err)
	}
	missing, err := ledgers.Doubt(ctx, s, 1, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := all[1].Kill(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		_, _ = s.Admit(ctx, term, 10) // it cannot find out yet
	}
	if err := all[1].Run(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the letters are resolved", func() bool {
		if _, err := s.Admit(ctx, term, 10); err != nil {
			return false
		}
		counts, err := s.Count(ctx)
		return err == nil && len(counts) == 1 && counts[0].Queue == "q" && counts[0].Tasks == 2
	})
	tasks := claim(t, s, worker(t, s), 10)
	if len(tasks) != 2 || tasks[0].ID == tasks[1].ID {
		t.Fatalf("claimed %+v", tasks)
	}
	for _, task := range tasks {
		if task.ID != stored && task.ID != missing {
			t.Errorf("claimed %v", task.ID)
		}
	}
}

// If it is unknown whether the letter is stored, no second one is written, which would make the tasks run twice.
func TestALetterIsWrittenToOneLedger(t *testing.T) {
	dsn := three.DSN(t)
	s := open(t, dsn)
	ctx := context.Background()
	if _, err := ledgers.Doubt(ctx, s, 0, false); err != nil { // the statement is prepared
		t.Fatal(err)
	}
	c, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	tx, err := c.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, "lock table tusk_1_of_3.waiting"); err != nil {
		t.Fatal(err)
	}
	said := make(chan error, 1)
	go func() {
		_, err := ledgers.Doubt(ctx, s, 0, false)
		said <- err
	}()
	eventually(t, "the letter is being stored", func() bool {
		var waits bool
		err := ledgers.Pool(s).QueryRow(ctx, `select exists (select from pg_stat_activity
			where datname = current_database() and wait_event_type = 'Lock')`).Scan(&waits)
		return err == nil && waits
	})
	ledgers.Lose(s, 1)
	if err := <-said; err == nil || errors.Is(err, store.ErrNotCommitted) {
		t.Errorf("the caller is told %v", err)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	second := store.Filter{Queues: []string{"tusk.letters"}}
	if n, err := ledgers.CountIn(ctx, s, 2, second); err != nil || n > 0 {
		t.Errorf("another ledger has the letter, too: %d, %v", n, err)
	}
}
