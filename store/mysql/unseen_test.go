package mysql_test

import (
	"os"
	"strings"
	"testing"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/mysql"
)

// What InnoDB may show, for a moment, of a task that was just leased: nothing, or the task as it was before it became
// available.
var unseen = []struct{ name, hide, show string }{
	{"no row", "delete from tusk_task", "insert into tusk_task select * from hidden"},
	{"an older lap", "update tusk_task set lap = lap - 1", "update tusk_task set lap = lap + 1"},
	{"before it was granted", "update tusk_task set state = 2", "update tusk_task set state = 3"},
}

func TestALeaseOutlivesARepeatThatDoesNotSeeItsTask(t *testing.T) {
	for _, test := range unseen {
		t.Run(test.name, func(t *testing.T) {
			s := fresh(t)
			enqueue(t, s, newTasks(1, "q")...)
			c := store.ClaimRequest{Worker: startWorker(t, s), Queues: []string{"q"}, Limit: 1, Token: store.NewToken()}
			if tasks, err := s.Claim(t.Context(), c); err != nil || len(tasks) != 1 {
				t.Fatal(tasks, err)
			}
			exec(t, s, "create table hidden as select * from tusk_task")
			exec(t, s, test.hide)
			c.Again = true
			if tasks, err := s.Claim(t.Context(), c); err != nil || len(tasks) != 0 {
				t.Fatal(tasks, err)
			}
			exec(t, s, test.show)
			if tasks, err := s.Claim(t.Context(), c); err != nil || len(tasks) != 1 {
				t.Errorf("the lease is gone, and its task runs for ever: %v, %v", tasks, err)
			}
		})
	}
}

func TestALeaseOutlivesARescueThatDoesNotSeeItsTask(t *testing.T) {
	for _, test := range unseen {
		t.Run(test.name, func(t *testing.T) {
			s := fresh(t)
			w := startWorker(t, s)
			enqueue(t, s, newTasks(1, "q")...)
			if tasks := claim(t, s, w, 1); len(tasks) != 1 {
				t.Fatal(tasks)
			}
			term := lead(t, s)
			signOff(t, s, w)
			exec(t, s, "create table hidden as select * from tusk_task")
			exec(t, s, test.hide)
			if got, err := s.Rescue(t.Context(), term, 10); err != nil || len(got) != 0 {
				t.Fatal(got, err)
			}
			exec(t, s, test.show)
			if got, err := s.Rescue(t.Context(), term, 10); err != nil || len(got) != 1 {
				t.Errorf("the lease is gone, and its task runs for ever: %v, %v", got, err)
			}
		})
	}
}

// aged makes leases two minutes older.
func aged(t *testing.T, s *mysql.Store) {
	t.Helper()
	exec(t, s, "update tusk_lease set claimed_at = claimed_at - 120000000")
}

func TestALeaseOfATaskThatIsGoneForGoodGoes(t *testing.T) {
	for _, test := range []struct {
		name string
		look func(s *mysql.Store, w store.ID, term int64) error
	}{
		{"with its worker", func(s *mysql.Store, w store.ID, term int64) error {
			signOff(t, s, w)
			_, err := s.Rescue(t.Context(), term, 10)
			return err
		}},
		{"by the sweep", func(s *mysql.Store, _ store.ID, term int64) error { return s.Maintain(t.Context(), term) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := fresh(t)
			w := startWorker(t, s)
			enqueue(t, s, newTasks(1, "q")...)
			claim(t, s, w, 1)
			exec(t, s, "delete from tusk_task")
			aged(t, s)
			if err := test.look(s, w, lead(t, s)); err != nil {
				t.Fatal(err)
			}
			if n := number(t, s, "select count(*) from tusk_lease"); n != 0 {
				t.Errorf("%d leases", n)
			}
		})
	}
}

func TestTheSweepKeepsALeaseWhoseTaskItSeesAsItWasBefore(t *testing.T) {
	s := fresh(t)
	w := startWorker(t, s)
	enqueue(t, s, newTasks(1, "q")...)
	claim(t, s, w, 1)
	exec(t, s, "update tusk_task set lap = lap - 1")
	aged(t, s)
	if err := s.Maintain(t.Context(), lead(t, s)); err != nil {
		t.Fatal(err)
	}
	if n := number(t, s, "select count(*) from tusk_lease"); n != 1 {
		t.Errorf("%d leases", n)
	}
}

func TestAWishToStopOutlivesASweepThatDoesNotSeeItsTask(t *testing.T) {
	for _, test := range unseen {
		t.Run(test.name, func(t *testing.T) {
			s := fresh(t)
			w := startWorker(t, s)
			enqueue(t, s, newTasks(1, "q")...)
			held := claim(t, s, w, 1)
			if _, err := s.Edit(t.Context(), store.Edit{IDs: []store.ID{held[0].ID},
				Change: store.Change{Op: store.Cancel}}); err != nil {
				t.Fatal(err)
			}
			exec(t, s, "create table hidden as select * from tusk_task")
			exec(t, s, test.hide)
			term := lead(t, s)
			if err := s.Maintain(t.Context(), term); err != nil {
				t.Fatal(err)
			}
			exec(t, s, test.show)
			if n := number(t, s, "select count(*) from tusk_stop"); n != 1 {
				t.Fatal("the wish is forgotten")
			}
			finish(t, s, held)
			if err := s.Maintain(t.Context(), term); err != nil {
				t.Fatal(err)
			}
			if n := number(t, s, "select count(*) from tusk_stop"); n != 0 {
				t.Error("the wish is not forgotten")
			}
		})
	}
}

// A task is running that no lease knows of. It is reported, and taken back by the documented steps.
func TestATaskThatNobodyHoldsIsTold(t *testing.T) {
	s := fresh(t)
	w := startWorker(t, s)
	enqueue(t, s, newTasks(3, "q")...)
	claim(t, s, w, 1)
	claim(t, s, w, 1)
	told := func() string {
		t.Helper()
		all, err := s.Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(all, "\n")
	}
	if all := told(); strings.Contains(all, "no lease") {
		t.Errorf("told of a task that is held: %q", all)
	}
	exec(t, s, "delete from tusk_lease order by token limit 1")
	if all := told(); !strings.Contains(all, "nobody takes them back: 1;") {
		t.Errorf("told %q", all)
	}
	term := lead(t, s)
	signOff(t, s, w)
	if got, err := s.Rescue(t.Context(), term, 10); err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	exec(t, s, "delete from tusk_lease") // as if the rescued task had been taken back
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "insert into tusk_lease")
	repair, _, found := strings.Cut(rest, ";")
	if !found {
		t.Fatal("the description says nothing of it")
	}
	exec(t, s, "insert into tusk_lease"+repair)
	if all := told(); strings.Contains(all, "no lease") {
		t.Errorf("told %q", all)
	}
	if got, err := s.Rescue(t.Context(), term, 10); err != nil || len(got) != 2 {
		t.Error(got, err)
	}
}
