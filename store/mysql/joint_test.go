package mysql

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
)

// queueOf makes a store with n tasks, some of them enqueued together, and workers.
func queueOf(t *testing.T, n, workers int) (s *Store, ids []store.ID) {
	t.Helper()
	ctx := t.Context()
	s, err := Open(ctx, mysqltest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if _, err := s.Migrate(ctx, -1); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < n; {
		var tasks []store.NewTask
		for range min(1+i%70, n-i) {
			tasks = append(tasks, store.NewTask{ID: store.ID{1, byte(i >> 8), byte(i)}, Kind: "k",
				Queue: []string{"a", "b"}[i%2], Priority: int16(i % 3), Args: fmt.Append(nil, i)})
			i++
		}
		if _, err := s.Enqueue(ctx, tasks); err != nil {
			t.Fatal(err)
		}
	}
	for i := range workers {
		ids = append(ids, store.ID{9, byte(i)})
		if _, err := s.Extend(ctx, store.Beat{Worker: store.Worker{ID: ids[i]}, TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	return s, ids
}

func wanting(worker store.ID, limit int) *claim {
	queues := []string{"a", "b"}
	return &claim{request: store.ClaimRequest{Worker: worker, Queues: queues, Limit: limit, Token: store.NewToken()},
		queues: queues}
}

func completed(tasks []store.Task) (outcomes []store.Outcome) {
	for i := range tasks {
		outcomes = append(outcomes, store.Outcome{Task: &tasks[i], State: store.Completed, Attempt: tasks[i].Attempt})
	}
	return outcomes
}

// asOnMySQL changes a procedure to roughly what MySQL makes of it: MySQL runs what MariaDB takes for a comment. MariaDB
// has no nowait in procedures.
func asOnMySQL(t *testing.T, s *Store, name string) {
	t.Helper()
	name += s.program.mark
	own := regexp.MustCompile(`(?s)/\*!80001 (.*?)\*/`)
	text := own.ReplaceAllString(s.program.texts[name], "$1")
	text = regexp.MustCompile(`/\*M!.*?\*/`).ReplaceAllString(text, "")
	text = strings.NewReplacer("for update nowait", "for update", "select count(*) into locked",
		"set statement innodb_lock_wait_timeout = 0 for select count(*) into locked").Replace(text)
	for _, text := range []string{"drop procedure " + name, text} {
		if _, err := s.db.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
}

// lieTogether stores ten adjacent tasks.
func lieTogether(t *testing.T, s *Store, turn bool) (tasks []store.NewTask) {
	t.Helper()
	tasks = make([]store.NewTask, 10)
	for i := range tasks {
		tasks[i] = store.NewTask{ID: store.ID{1, byte(i)}, Kind: "k", Queue: "a", Turn: turn}
	}
	if _, err := s.Enqueue(t.Context(), tasks); err != nil {
		t.Fatal(err)
	}
	return tasks
}

// holdSixth makes another transaction hold one of them.
func holdSixth(t *testing.T, s *Store, tasks []store.NewTask) {
	t.Helper()
	tx, err := s.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback() })
	if _, err := tx.ExecContext(t.Context(), "select place from tusk_task where id = ? for update",
		tasks[5].ID[:]); err != nil {
		t.Fatal(err)
	}
}

func TestAFinishDoesNotTouchTheTaskBehindItsLast(t *testing.T) {
	for _, mySQL := range []bool{false, true} {
		s, workers := queueOf(t, 0, 1)
		if mySQL && !IsMariaDB(t, s) {
			continue
		}
		tasks := lieTogether(t, s, false)
		claimed, err := s.Claim(t.Context(), wanting(workers[0], 10).request)
		if err != nil || len(claimed) != 10 {
			t.Fatal(len(claimed), err)
		}
		if mySQL {
			asOnMySQL(t, s, "tusk_finish")
		}
		holdSixth(t, s, tasks)
		done, err := s.finishTogether(t.Context(), []*finishing{{outcomes: completed(claimed[:5])}})
		if err != nil || !done {
			t.Errorf("as on MySQL: %v: five tasks are finished at once while the sixth is locked: %v, %v", mySQL, done, err)
		}
	}
}

func TestAGrantDoesNotTouchTheTaskBehindItsLast(t *testing.T) {
	for _, mySQL := range []bool{false, true} {
		s, _ := queueOf(t, 0, 0)
		if mySQL && !IsMariaDB(t, s) {
			continue
		}
		tasks := lieTogether(t, s, true)
		lead, err := s.Lead(t.Context(), store.Candidate{ID: store.ID{8}, TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if mySQL {
			asOnMySQL(t, s, "tusk_grant")
		}
		holdSixth(t, s, tasks)
		var ids []store.ID
		for _, task := range tasks[:5] {
			ids = append(ids, task.ID)
		}
		if n, err := s.grant(t.Context(), lead.Term, ids); err != nil || n != 5 {
			t.Errorf("as on MySQL: %v: five tasks get their turn at once while the sixth is locked: %d, %v", mySQL, n, err)
		}
	}
}

func TestClaimsThatAreAnsweredTogetherGetWhatEachByItselfWouldHave(t *testing.T) {
	s, workers := queueOf(t, 100, 4)
	all := []*claim{wanting(workers[0], 7), wanting(workers[1], 40), wanting(workers[2], 33), wanting(workers[3], 60)}
	if done, err := s.claimTogether(t.Context(), all); !done || err != nil {
		t.Fatal(done, err)
	}
	seen := map[store.ID]bool{}
	var queues []string
	for i, want := range []int{7, 40, 33, 20} {
		c := all[i]
		if len(c.tasks) != want {
			t.Errorf("claim %d got %d tasks, want %d", i, len(c.tasks), want)
		}
		for _, task := range c.tasks {
			if seen[task.ID] || task.Lease != c.request.Token || task.Worker != workers[i] || task.State != store.Running ||
				task.Attempt != 1 {
				t.Errorf("claim %d got %+v", i, task)
			}
			seen[task.ID] = true
			if n := len(queues); n == 0 || queues[n-1] != task.Queue {
				queues = append(queues, task.Queue)
			}
		}
		again, err := s.Claim(t.Context(), store.ClaimRequest{Worker: workers[i], Queues: c.queues, Limit: 100,
			Token: c.request.Token, Again: true})
		if err != nil || len(again) != want ||
			!slices.EqualFunc(again, c.tasks, func(a, b store.Task) bool { return a.ID == b.ID }) {
			t.Errorf("claim %d repeated got %d tasks (%v), want the same %d", i, len(again), err, want)
		}
	}
	if !slices.Equal(queues, []string{"a", "b"}) {
		t.Errorf("claimed from %v, want first all of a", queues)
	}
}

func TestADeadWorkerAmongClaimsThatMeetIsAloneWithIt(t *testing.T) {
	s, workers := queueOf(t, 100, 2)
	all := []*claim{wanting(workers[0], 5), wanting(store.ID{8}, 5), wanting(workers[1], 5)}
	if done, err := s.claimTogether(t.Context(), all); done {
		t.Fatal("answered together", err)
	}
	for i, c := range all {
		if err := s.claimAlone(t.Context(), c); errors.Is(err, store.ErrWorkerDead) != (i == 1) ||
			len(c.tasks) != []int{5, 0, 5}[i] {
			t.Errorf("claim %d by itself: %d tasks, %v", i, len(c.tasks), err)
		}
	}
}

func TestAFinishThatComesTooLateIsLostAloneAmongThoseItMeets(t *testing.T) {
	ctx := t.Context()
	s, workers := queueOf(t, 100, 2)
	term, err := s.Lead(ctx, store.Candidate{ID: store.ID{7}, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	first, second := wanting(workers[0], 10), wanting(workers[1], 10)
	if done, err := s.claimTogether(ctx, []*claim{first, second}); !done || err != nil {
		t.Fatal(done, err)
	}
	if _, err := s.db.Exec("update tusk_worker set expires_at = 0 where id = ?", workers[0][:]); err != nil {
		t.Fatal(err)
	}
	dead, err := s.Rescue(ctx, term.Term, 100)
	if err != nil || len(dead) != 10 {
		t.Fatal(len(dead), err)
	}
	other, err := New(ctx, s.db, Options{}) // it remembers none of these leases
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Finish(ctx, []store.Outcome{{Task: &dead[3], State: store.Available, Attempt: 1}}); err != nil {
		t.Fatal(err)
	}
	finishes := []*finishing{{outcomes: completed(first.tasks)}, {outcomes: completed(second.tasks)}}
	if done, err := s.finishTogether(ctx, finishes); done {
		t.Fatal("answered together", err)
	}
	for i, f := range finishes {
		lost, err := s.Finish(ctx, f.outcomes)
		if err != nil || i == 0 && !slices.Equal(lost, []store.ID{dead[3].ID}) || i == 1 && len(lost) > 0 {
			t.Errorf("finish %d: %v, %v", i, lost, err)
		}
	}
}

func TestManyWorkersOfOneProcessRunEachTaskOnce(t *testing.T) {
	const tasks = 3000
	s, workers := queueOf(t, tasks, 16)
	var mu sync.Mutex
	runs := map[store.ID]int{}
	var all sync.WaitGroup
	for i, worker := range workers {
		all.Go(func() {
			for {
				got, err := s.Claim(t.Context(), store.ClaimRequest{Worker: worker, Queues: []string{"a", "b"}, Limit: 1 + i*3,
					Token: store.NewToken()})
				if err != nil || len(got) == 0 {
					if err != nil {
						t.Error(err)
					}
					return
				}
				mu.Lock()
				for _, task := range got {
					runs[task.ID]++
				}
				mu.Unlock()
				if lost, err := s.Finish(t.Context(), completed(got)); err != nil || len(lost) > 0 {
					t.Error(lost, err)
				}
			}
		})
	}
	all.Wait()
	if len(runs) != tasks {
		t.Errorf("%d tasks were run, want %d", len(runs), tasks)
	}
	for id, n := range runs {
		if n != 1 {
			t.Errorf("task %v was run %d times", id, n)
		}
	}
	var left int
	if err := s.db.QueryRow(
		"select (select count(*) from tusk_ready) + (select count(*) from tusk_task where state <> 6)").Scan(
		&left); err != nil || left != 0 {
		t.Errorf("%d left, %v", left, err)
	}
	counts, err := s.Count(t.Context())
	for _, c := range counts {
		if c.Tasks != 0 {
			t.Errorf("%+v in the end", c)
		}
	}
	if err != nil {
		t.Error(err)
	}
}
