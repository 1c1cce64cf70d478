package mysql_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/mysql"
)

// statements returns how many statements the server has received.
func statements(t testing.TB, s *mysql.Store) (n int64) {
	t.Helper()
	name := ""
	if err := s.DB().QueryRow("show global status like 'Questions'").Scan(&name, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A bulk operation must not cost a transaction for each task.
func TestManyTasksAreEditedByFewStatements(t *testing.T) {
	const many = 1000
	s := fresh(t)
	ids := make([]store.ID, 0, many)
	for call := range 201 { // 200 of one task, and one of many
		tasks := newTasks(1, "q")
		if call == 200 {
			tasks = newTasks(many-200, "q")
		}
		for i := range tasks {
			tasks[i].Tags = []string{"bulk"}
			ids = append(ids, tasks[i].ID)
		}
		enqueue(t, s, tasks...)
	}
	for _, test := range []struct {
		name   string
		change store.Change
		state  store.State
	}{
		{"reprioritize", store.Change{Op: store.Reprioritize, Priority: 7}, store.Available},
		{"move", store.Change{Op: store.Move, Queue: "r"}, store.Available},
		{"reschedule", store.Change{Op: store.Reschedule, Delay: time.Hour}, store.Scheduled},
		{"retry", store.Change{Op: store.Retry}, store.Available},
		{"cancel", store.Change{Op: store.Cancel, Reason: "enough"}, store.Cancelled},
		{"retry what is cancelled", store.Change{Op: store.Retry, Delay: time.Hour}, store.Scheduled},
		{"delete", store.Change{Op: store.Delete}, 0},
	} {
		before := statements(t, s)
		edited, err := s.Edit(t.Context(), store.Edit{IDs: ids, Change: test.change})
		if n := statements(t, s) - before - 1; n > 3*many/100 { // this query does not count
			t.Errorf("%s: %d statements for %d tasks", test.name, n, many)
		}
		if err != nil || len(edited) != many {
			t.Fatalf("%s: %d were edited: %v", test.name, len(edited), err)
		}
		for i, e := range edited {
			if e.ID != ids[i] || e.Result != store.Changed || e.State != test.state {
				t.Fatalf("%s: number %d came to %+v", test.name, i, e)
			}
		}
		if n := number(t, s, "select count(*) from tusk_task where queue = ? and state = ?", []byte("r"),
			test.state); test.name != "reprioritize" && test.state != 0 && n != many {
			t.Errorf("%s: %d tasks are in that state", test.name, n)
		}
	}
	for _, table := range []string{"tusk_task", "tusk_ready", "tusk_waiting", "tusk_label"} {
		if n := number(t, s, "select count(*) from "+table); n != 0 {
			t.Errorf("%d rows are left in %s", n, table)
		}
	}
}

// A transaction holds one of the tasks, and another one cannot be stored. The others are changed.
func TestTheResultsOfAnEditAreNotLostWithOthers(t *testing.T) {
	s := fresh(t)
	tasks := newTasks(4, "q")
	enqueue(t, s, tasks...)
	ids := make([]store.ID, len(tasks))
	for i := range tasks {
		ids[i] = tasks[i].ID
	}
	exec(t, s, fmt.Sprintf(`create trigger injected before update on tusk_task for each row
		if new.id = x'%x' then signal sqlstate '45000' set mysql_errno = 1406, message_text = 'injected'; end if`,
		ids[3][:]))
	tx, _ := begin(t, s)
	if _, err := tx.Exec("select 1 from tusk_task where id = ? for update", ids[2][:]); err != nil {
		t.Fatal(err)
	}
	edited, err := s.Edit(t.Context(), store.Edit{IDs: ids, Change: store.Change{Op: store.Cancel}})
	said := new(store.HeldError)
	if !errors.Is(err, store.ErrUnstorable) || errors.Is(err, store.ErrNotCommitted) || !errors.As(err, &said) ||
		!slices.Equal(said.Tasks, ids[2:]) {
		t.Errorf("%v; want that two are held, and one cannot be stored", err)
	}
	if len(edited) != len(ids) {
		t.Fatalf("%d results", len(edited))
	}
	for i, want := range []store.EditResult{store.Changed, store.Changed, store.Refused, store.Refused} {
		if edited[i].ID != ids[i] || edited[i].Result != want {
			t.Errorf("number %d: %+v, want %v", i, edited[i], want)
		}
	}
	edited, err = s.Edit(t.Context(), store.Edit{IDs: ids[2:], Change: store.Change{Op: store.Cancel}})
	if !errors.Is(err, store.ErrNotCommitted) || !errors.Is(err, store.ErrUnstorable) || errors.As(err, &said) ||
		len(edited) > 0 {
		t.Errorf("if none can be changed: %v, %v", edited, err)
	}
}

func TestManyTasksWithKeysTakeFewStatements(t *testing.T) {
	const many = 1000
	s := fresh(t)
	tasks := newTasks(many, "q")
	ids := make([]store.ID, many)
	for i := range tasks {
		tasks[i].Key, ids[i] = fmt.Sprint("k", i), tasks[i].ID
	}
	cost := func(name string, do func()) {
		t.Helper()
		before := statements(t, s)
		do()
		if n := statements(t, s) - before - 1; n > 4*many/100 {
			t.Errorf("%s: %d statements for %d tasks", name, n, many)
		}
	}
	cost("enqueue", func() { enqueue(t, s, tasks...) })
	for _, change := range []store.Change{{Op: store.Cancel}, {Op: store.Retry}, {Op: store.Move, Queue: "r"},
		{Op: store.Delete}} {
		cost(change.Op.String(), func() {
			edited, err := s.Edit(t.Context(), store.Edit{IDs: ids, Change: change})
			if err != nil || len(edited) != many || edited[0].Result != store.Changed {
				t.Fatal(len(edited), err)
			}
		})
	}
	if n := number(t, s, "select count(*) from tusk_key"); n != 0 {
		t.Errorf("%d keys are left", n)
	}
}

// A row of tusk_ready stands for up to 32 tasks, any of which can be taken out of it.
func TestTasksAreTakenFromTheMiddleOfARow(t *testing.T) {
	s := fresh(t)
	tasks := newTasks(32, "q")
	enqueue(t, s, tasks...)
	gone := map[store.ID]bool{}
	for _, some := range [][]int{{3, 4, 31}, {0, 10}, {5, 9, 30}} {
		var ids []store.ID
		for _, i := range some {
			gone[tasks[i].ID], ids = true, append(ids, tasks[i].ID)
		}
		if _, err := s.Edit(t.Context(), store.Edit{IDs: ids, Change: store.Change{Op: store.Cancel}}); err != nil {
			t.Fatal(err)
		}
	}
	got := claim(t, s, startWorker(t, s), 100)
	if len(got) != len(tasks)-len(gone) {
		t.Errorf("claimed %d tasks", len(got))
	}
	for _, task := range got {
		if gone[task.ID] {
			t.Error("a cancelled task was claimed")
		}
	}
}

// A transaction may meet a lock only when it writes, and is then tried with half of the tasks.
func TestAnEditThatIsSplitLateAnswersOnceForEachTask(t *testing.T) {
	s := fresh(t)
	tasks := newTasks(2, "q")
	enqueue(t, s, tasks...)
	exec(t, s, `create trigger late before insert on tusk_delta for each row
		if new.body like '%"tasks":-2%' then
			signal sqlstate 'HY000' set mysql_errno = 1205, message_text = 'held';
		end if`)
	ids := []store.ID{tasks[0].ID, tasks[1].ID}
	edited, err := s.Edit(t.Context(), store.Edit{IDs: ids, Change: store.Change{Op: store.Cancel}})
	if err != nil || len(edited) != 2 {
		t.Fatalf("%d results for 2 tasks: %v", len(edited), err)
	}
	for i, e := range edited {
		if e.ID != ids[i] || e.Result != store.Changed {
			t.Errorf("number %d came to %+v", i, e)
		}
	}
}

// Args may be large, and nobody who locks tasks needs them.
func TestTasksAreLockedWithoutTheirArgs(t *testing.T) {
	const many, size = 50, 100_000
	s := fresh(t)
	tasks, ids := newTasks(many, "q"), make([]store.ID, many)
	for i := range tasks {
		tasks[i].Args, ids[i] = fmt.Appendf(nil, "%q", strings.Repeat("x", size)), tasks[i].ID
		tasks[i].Delay = time.Millisecond
	}
	enqueue(t, s, tasks...)
	term := lead(t, s)
	sent := func() (n int64) {
		name := ""
		if err := s.DB().QueryRow("show global status like 'Bytes_sent'").Scan(&name, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	cheap := func(what string, do func() error) {
		t.Helper()
		before := sent()
		if err := do(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if n := sent() - before; n > many*size/10 {
			t.Errorf("%s: the server sent %d bytes for %d tasks", what, n, many)
		}
	}
	cheap("admit", func() error {
		for moved := 0; moved < many; {
			did, err := s.Admit(t.Context(), term, many)
			if moved += did.Count; err != nil {
				return err
			}
		}
		return nil
	})
	cheap("cancel", func() error {
		_, err := s.Edit(t.Context(), store.Edit{IDs: ids, Change: store.Change{Op: store.Cancel}})
		return err
	})
	cheap("prune", func() error {
		for left := int64(many); left > 0; left = number(t, s, "select count(*) from tusk_task") {
			if _, err := s.Prune(t.Context(), term, store.Retention{Cancelled: time.Millisecond}, many); err != nil {
				return err
			}
		}
		return nil
	})
}
