package mysql_test

import (
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Lists whose tasks have all come back are deleted by whoever goes past them. One call looks at a few of them.
func TestAPageOfDueLooksAtABoundedNumberOfLists(t *testing.T) {
	s := fresh(t)
	ctx, worker, tasks := t.Context(), startWorker(t, s), newTasks(1, "q")
	lead, err := s.Lead(ctx, store.Candidate{ID: tasks[0].ID, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	end := func(tasks []store.NewTask) {
		enqueue(t, s, tasks...)
		finish(t, s, claim(t, s, worker, 1))
		if _, err := s.Prune(ctx, lead.Term, store.Retention{}, 100); err != nil { // so that each is listed by itself
			t.Fatal(err)
		}
	}
	for range 7 {
		tasks := newTasks(1, "q")
		end(tasks)
		gone := store.Edit{IDs: []store.ID{tasks[0].ID}, Change: store.Change{Op: store.Delete}}
		if _, err := s.Edit(ctx, gone); err != nil {
			t.Fatal(err)
		}
	}
	end(tasks)
	time.Sleep(5 * time.Millisecond)
	s.LookAtLists(3)
	pages := 0
	for from := ""; ; pages++ {
		due, err := s.Due(ctx, store.Retention{Completed: time.Millisecond}, from, 1)
		if err != nil {
			t.Fatal(err)
		}
		if (due.Receipt == nil) != (len(due.Tasks) == 0) {
			t.Errorf("%d tasks with a receipt of %d bytes", len(due.Tasks), len(due.Receipt))
		}
		if len(due.Tasks) > 0 {
			if due.Tasks[0].ID != tasks[0].ID {
				t.Errorf("due: %v", due.Tasks)
			}
			break
		}
		if from = due.Next; from == "" {
			t.Fatal("the task behind the lists was not found")
		}
	}
	if pages != 2 {
		t.Errorf("%d pages without tasks, want 2: seven lists without tasks, three a page", pages)
	}
	if n := number(t, s, "select count(*) from tusk_finished"); n != 2 {
		t.Errorf("%d lists are left, want 2: the one with the task, and one on its page", n)
	}
}

// A class whose lists have no tasks any more has no lists after the archive has looked at it.
func TestDueLeavesNoListsWithoutTasks(t *testing.T) {
	s := fresh(t)
	ctx, worker, tasks := t.Context(), startWorker(t, s), newTasks(3, "q")
	lead, err := s.Lead(ctx, store.Candidate{ID: tasks[0].ID, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	enqueue(t, s, tasks...)
	finish(t, s, claim(t, s, worker, 3))
	if _, err := s.Prune(ctx, lead.Term, store.Retention{}, 100); err != nil {
		t.Fatal(err)
	}
	gone := store.Edit{Change: store.Change{Op: store.Delete}}
	for _, n := range tasks {
		gone.IDs = append(gone.IDs, n.ID)
	}
	if _, err := s.Edit(ctx, gone); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Millisecond)
	due, err := s.Due(ctx, store.Retention{Completed: time.Millisecond}, "", 10)
	if err != nil || len(due.Tasks) > 0 || due.Next != "" {
		t.Fatal(due, err)
	}
	if n := number(t, s, "select count(*) from tusk_finished"); n != 0 {
		t.Errorf("%d lists are left", n)
	}
}
