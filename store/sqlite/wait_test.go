package sqlite

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// tally counts the statements that write.
type tally struct {
	session
	names []string
}

func (c *tally) exec(ctx context.Context, name string, args ...any) (int64, error) {
	c.names = append(c.names, name)
	return c.session.exec(ctx, name, args...)
}

func (c *tally) each(ctx context.Context, name string, fn func(row) error, args ...any) error {
	c.names = append(c.names, name)
	return c.session.each(ctx, name, fn, args...)
}

// statementsOf returns the statements that a call ran.
func statementsOf(t *testing.T, s *Store, call func(*work) error) []string {
	t.Helper()
	var names []string
	err := s.write(t.Context(), true, func(w *work) error {
		seen := &tally{session: w.session}
		w.session = seen
		err := call(w)
		w.session, names = seen.session, seen.names
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func tasksOf(n int, change func(i int, n *store.NewTask)) []store.NewTask {
	tasks := make([]store.NewTask, n)
	for i := range tasks {
		tasks[i] = store.NewTask{ID: store.ID{byte(i), 1}, Kind: "k", Queue: "q"}
		if change != nil {
			change(i, &tasks[i])
		}
	}
	return tasks
}

// leading returns the term of a leader for ten minutes.
func leading(t *testing.T, s *Store) int64 {
	t.Helper()
	l, err := s.Lead(t.Context(), store.Candidate{ID: store.ID{1}, TTL: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return l.Term
}

// claimAll claims up to 1000 tasks of the queue "q".
func claimAll(t *testing.T, s *Store) []store.Task {
	t.Helper()
	worker := store.ID{2}
	if _, err := s.Extend(t.Context(), store.Beat{Worker: store.Worker{ID: worker}, TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	tasks, err := s.Claim(t.Context(), store.ClaimRequest{Worker: worker, Queues: []string{"q"}, Limit: 1000,
		Token: store.NewToken()})
	if err != nil {
		t.Fatal(err)
	}
	return tasks
}

func ends(tasks []store.Task, state store.State) []store.Outcome {
	outcomes := make([]store.Outcome, len(tasks))
	for i := range tasks {
		outcomes[i] = store.Outcome{Task: &tasks[i], State: state, Attempt: tasks[i].Attempt}
	}
	return outcomes
}

func mustEnqueue(t *testing.T, s *Store, tasks ...store.NewTask) []store.Enqueued {
	t.Helper()
	results, err := s.Enqueue(t.Context(), tasks)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

func stateOf(t *testing.T, s *Store, id store.ID) (store.State, string) {
	t.Helper()
	tasks, err := s.List(t.Context(), store.Filter{IDs: []store.ID{id}})
	if err != nil {
		t.Fatal(err)
	}
	if len(tasks) == 0 {
		return 0, ""
	}
	return tasks[0].State, tasks[0].Reason
}

func TestAPlainTaskCostsOneStatementAtEachEnd(t *testing.T) {
	s := openTest(t)
	// the queue, the kind and the lane are known
	mustEnqueue(t, s, store.NewTask{ID: store.ID{9, 9}, Kind: "k", Queue: "q"})
	mustEnqueue(t, s, tasksOf(2, func(i int, n *store.NewTask) {
		n.ID[2] = 2
		n.Turn, n.Needs = i == 0, []store.Need{{Task: store.ID{9, 9}}} // others wait for it
	})...)
	for _, n := range []int{1, 10, 100} {
		added := statementsOf(t, s, func(w *work) error {
			_, err := w.enqueue(tasksOf(n, func(_ int, task *store.NewTask) { task.ID[3] = byte(n) }))
			return err
		})
		if want := n + 1; len(added) != want { // and the lane's
			t.Errorf("enqueue of %d: %d statements, want %d: %q", n, len(added), want, added)
		}
		tasks := claimAll(t, s)
		tasks = slices.DeleteFunc(tasks, func(task store.Task) bool { return task.ID == store.ID{9, 9} })
		ended := statementsOf(t, s, func(w *work) error {
			_, err := w.finish(ends(tasks, store.Completed))
			return err
		})
		if want := n + 2; len(ended) != want { // and the lease's and the lane's
			t.Errorf("finish of %d: %d statements, want %d: %q", n, len(ended), want, ended)
		}
	}
}

func TestWaitingTasksAreFoundByIndex(t *testing.T) {
	s := openTest(t)
	for name, want := range map[string]string{
		"turn.waiting": "SEARCH tusk_turn USING COVERING INDEX tusk_turn_since (since>?)\nCORRELATED SCALAR SUBQUERY " +
			"1\nSEARCH tusk_task USING COVERING INDEX tusk_task_turn (turn=? AND priority=? AND place>?)",
		"turn.empty":    "SEARCH t USING COVERING INDEX tusk_task_turn (turn=?)",
		"grant.take":    "SEARCH tusk_task USING INTEGER PRIMARY KEY (rowid=?)",
		"turn.holders":  "SEARCH tusk_task USING INDEX tusk_task_holds (turn>?)",
		"prune.turns":   "SEARCH tusk_turn USING COVERING INDEX tusk_turn_since (since=?)",
		"turn.came":     "SCAN json_each VIRTUAL TABLE INDEX 1:\nSEARCH tusk_turn USING INTEGER PRIMARY KEY (rowid=?)",
		"turn.find":     "(queue=? AND tenant=? AND partition=?)",
		"turn.left":     "SEARCH tusk_task USING COVERING INDEX tusk_task_turn (turn=? AND priority=? AND place>?)",
		"task.find":     "SEARCH t USING INDEX tusk_task_id (id=?)",
		"need.children": "SEARCH n USING INDEX tusk_need_open (needed=?)",
		"need.meet":     "SEARCH tusk_need USING INDEX tusk_need_open (needed=? AND task=?)",
		"need.list":     "SEARCH n USING PRIMARY KEY (task=?)",
		"key.find":      "SEARCH tusk_key USING PRIMARY KEY (queue=? AND tenant=? AND key=?)",
		"lease.holds":   "SEARCH tusk_task USING INDEX tusk_task_id (id=?)",
		"prune.tasks":   "tusk_task_finished (kind=? AND state=? AND finished_at<?)",
		"task.put":      "SEARCH tusk_task USING INTEGER PRIMARY KEY (rowid=?)",
	} {
		if steps := plan(t, s, statements()[name]); !strings.Contains(strings.Join(steps, "\n"), want) {
			t.Errorf("%s: not by %s: %q", name, want, steps)
		}
	}
}

func TestACancelGoesDownTheGraphUpToTheLimit(t *testing.T) {
	s := openTest(t)
	term := leading(t, s)
	chain := tasksOf(20, func(i int, n *store.NewTask) {
		if i > 0 {
			n.Needs = []store.Need{{Task: store.ID{byte(i - 1), 1}}}
		}
	})
	mustEnqueue(t, s, chain...)
	if _, err := s.Edit(t.Context(), store.Edit{IDs: []store.ID{chain[0].ID},
		Change: store.Change{Op: store.Cancel}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{7, 7, 5, 0} {
		if did, err := s.Admit(t.Context(), term, 7); err != nil || did.Cancelled != want || did.Count != 0 {
			t.Fatalf("%+v %v, want %d", did, err, want)
		}
	}
	state, reason := stateOf(t, s, chain[19].ID)
	if want := fmt.Sprintf("needs task %v, which is cancelled", chain[18].ID); state != store.Cancelled || reason != want {
		t.Errorf("%v %q", state, reason)
	}
}

func TestARerunThatNeedsWhatFailsIsCancelledWhenItsKeyIsFree(t *testing.T) {
	s := openTest(t)
	term := leading(t, s)
	parent := store.NewTask{ID: store.ID{1}, Kind: "k", Queue: "other"}
	first := store.NewTask{ID: store.ID{2}, Kind: "k", Queue: "q", Key: "k", OnConflict: store.Rerun}
	again, below := first, store.NewTask{ID: store.ID{4}, Kind: "k", Queue: "q", Needs: []store.Need{{Task: store.ID{3}}}}
	again.ID, again.Needs = store.ID{3}, []store.Need{{Task: parent.ID}}
	mustEnqueue(t, s, parent, first)
	running := claimAll(t, s)
	mustEnqueue(t, s, again, below)
	if _, err := s.Edit(t.Context(), store.Edit{IDs: []store.ID{parent.ID},
		Change: store.Change{Op: store.Cancel}}); err != nil {
		t.Fatal(err)
	}
	if did, err := s.Admit(t.Context(), term, 10); err != nil || did.Cancelled != 0 {
		t.Fatalf("%+v %v", did, err)
	}
	if state, _ := stateOf(t, s, again.ID); state != store.Pending {
		t.Fatal(state)
	}
	if _, err := s.Finish(t.Context(), ends(running, store.Completed)); err != nil {
		t.Fatal(err)
	}
	if did, err := s.Admit(t.Context(), term, 10); err != nil || did.Cancelled != 2 {
		t.Fatalf("%+v %v", did, err)
	}
	for _, id := range []store.ID{again.ID, below.ID} {
		if state, _ := stateOf(t, s, id); state != store.Cancelled {
			t.Error(state)
		}
	}
}

func TestWhoNeedsARerunThatIsCalledOffIsTold(t *testing.T) {
	s := openTest(t)
	term := leading(t, s)
	first := store.NewTask{ID: store.ID{2}, Kind: "k", Queue: "q", Key: "k", OnConflict: store.Rerun}
	again := first
	again.ID = store.ID{3}
	mustEnqueue(t, s, first)
	claimAll(t, s)
	cancels, goesOn := store.NewTask{ID: store.ID{4}, Kind: "k", Queue: "q"},
		store.NewTask{ID: store.ID{5}, Kind: "k", Queue: "q"}
	cancels.Needs = []store.Need{{Task: again.ID}}
	goesOn.Needs = []store.Need{{Task: again.ID, OnFailure: store.ContinueOnFailure}}
	mustEnqueue(t, s, again, cancels, goesOn)
	if _, err := s.Edit(t.Context(), store.Edit{IDs: []store.ID{again.ID},
		Change: store.Change{Op: store.Cancel}}); err != nil {
		t.Fatal(err)
	}
	if state, _ := stateOf(t, s, goesOn.ID); state != store.Available {
		t.Error(state)
	}
	if did, err := s.Admit(t.Context(), term, 10); err != nil || did.Cancelled != 1 {
		t.Errorf("%+v %v", did, err)
	}
}

// rowsOf counts the rows of a table.
func rowsOf(t *testing.T, s *Store, table string) (n int) {
	t.Helper()
	if err := s.db.QueryRowContext(t.Context(), "select count(*) from "+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestNothingIsLeftOfNeedsAndTurns(t *testing.T) {
	s := openTest(t)
	term := leading(t, s)
	mustEnqueue(t, s, tasksOf(30, func(i int, n *store.NewTask) {
		n.Turn, n.Tenant, n.Partition = true, fmt.Sprint(i%3), fmt.Sprint(i)
		if i >= 10 {
			n.Needs = []store.Need{{Task: store.ID{byte(i % 10), 1}}}
		}
	})...)
	for round := range 3 {
		all, err := s.Turns(t.Context(), term, 100, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range all {
			if _, err := s.Grant(t.Context(), term, g.Waiting); err != nil {
				t.Fatal(err)
			}
		}
		tasks := claimAll(t, s)
		if n := len(tasks); n != []int{10, 20, 0}[round] {
			t.Fatalf("round %d: %d tasks", round, n)
		}
		if _, err := s.Finish(t.Context(), ends(tasks, store.Completed)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // what tasks leave behind is deleted after them
		if _, err := s.Prune(t.Context(), term, store.Retention{Completed: time.Nanosecond}, 1000); err != nil {
			t.Fatal(err)
		}
	}
	for _, table := range []string{"tusk_task", "tusk_need", "tusk_turn", "tusk_waiting", "tusk_lane"} {
		if n := rowsOf(t, s, table); n != 0 {
			t.Errorf("%s has %d rows", table, n)
		}
	}
}

// TestGroupsOfErrorsGoWithTheTasksThatRememberThem prunes when the tasks of one group are gone and those of another are
// kept.
func TestGroupsOfErrorsGoWithTheTasksThatRememberThem(t *testing.T) {
	s := openTest(t)
	term := leading(t, s)
	mustEnqueue(t, s, tasksOf(2, nil)...)
	outcomes := ends(claimAll(t, s), store.Discarded)
	for i := range outcomes {
		outcomes[i].Error, outcomes[i].Fingerprint, outcomes[i].Ago = "no", fmt.Sprint("group ", i), time.Hour
	}
	outcomes[1].State = store.Cancelled
	if _, err := s.Finish(t.Context(), outcomes); err != nil {
		t.Fatal(err)
	}
	if _, err := s.db.ExecContext(t.Context(), "update tusk_error set last = last - 36e8"); err != nil { // an hour ago
		t.Fatal(err)
	}
	groups := func(keep store.Retention) (left []string) {
		for range 2 {
			if _, err := s.Prune(t.Context(), term, keep, 10); err != nil {
				t.Fatal(err)
			}
		}
		all, err := s.Errors(t.Context(), store.ErrorFilter{})
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range all {
			left = append(left, g.Fingerprint)
		}
		return left
	}
	if left := groups(store.Retention{Cancelled: time.Nanosecond, Stats: 2 * time.Hour}); len(left) != 2 {
		t.Errorf("%q are left, though they are not old", left)
	}
	if left := groups(store.Retention{Stats: time.Minute}); len(left) != 1 || left[0] != "group 0" {
		t.Errorf("%q are left, want that of the task that is kept", left)
	}
	if left := groups(store.Retention{Discarded: time.Nanosecond, Stats: time.Minute}); len(left) != 0 {
		t.Errorf("%q are left of no task", left)
	}
}

func TestATurnCostsAStatementAndAFewForAllOfThem(t *testing.T) {
	s := openTest(t)
	term := leading(t, s)
	turning := func(i int, n *store.NewTask) { n.Turn, n.Tenant, n.ID[2] = true, fmt.Sprint(i%10), 1 }
	// the queue, the kind, the tenants and the lane are known
	for _, task := range mustEnqueue(t, s, tasksOf(10, turning)...) {
		if n, err := s.Grant(t.Context(), term, []store.ID{task.ID}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if _, err := s.Finish(t.Context(), ends(claimAll(t, s), store.Completed)); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{10, 100} {
		tasks := tasksOf(n, func(i int, task *store.NewTask) { turning(i, task); task.ID[3] = byte(n) })
		flushing := func(w *work, err error) error {
			if err == nil {
				err, w.lines = w.flushTurns(), nil
			}
			return err
		}
		added := statementsOf(t, s, func(w *work) error { _, err := w.enqueue(tasks); return flushing(w, err) })
		if want := n; len(added) != want { // tenants are known, and that a task may wait
			t.Errorf("enqueue of %d: %d statements, want %d: %q", n, len(added), want, added)
		}
		granted := 0
		var ids []store.ID
		for _, task := range tasks {
			ids = append(ids, task.ID)
		}
		if _, err := s.Turns(t.Context(), term, 100, 100); err != nil {
			t.Fatal(err)
		}
		granting := statementsOf(t, s, func(w *work) (err error) {
			granted, err = w.grantAll(ids, term)
			return flushing(w, err)
		})
		if want := n + 1; granted != n || len(granting) != want { // and the lane's
			t.Errorf("grant of %d: %d statements, want %d: %q", n, len(granting), want, granting)
		}
		claimed := claimAll(t, s)
		ended := statementsOf(t, s, func(w *work) error {
			_, err := w.finish(ends(claimed, store.Completed))
			return flushing(w, err)
		})
		if want := n + 2; len(ended) != want { // as without turns
			t.Errorf("finish of %d: %d statements, want %d: %q", n, len(ended), want, ended)
		}
	}
	if all, err := s.Turns(t.Context(), term, 100, 1); err != nil || len(all) != 0 {
		t.Error(all, err)
	}
}
