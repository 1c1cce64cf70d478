package mysql_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Damaged rows, which the owner of the tables can write, do not hide or hold up anything else.
func TestDamagedRowsHoldUpNoOthers(t *testing.T) {
	s := fresh(t)
	tasks := newTasks(3, "q")
	tasks[1].Tags = []string{"a"}
	if _, err := s.Enqueue(t.Context(), tasks); err != nil {
		t.Fatal(err)
	}
	w := startWorker(t, s)
	exec(t, s, "update tusk_task set tags = 'not JSON' where tags is not null")
	exec(t, s, "update tusk_worker set queues = 'not JSON'")
	exec(t, s, "insert into tusk_delta (at, body) values (1, 'not JSON')")
	if workers, err := s.Workers(t.Context()); err != nil || len(workers) != 1 {
		t.Error(workers, err)
	}
	claimed, err := s.Claim(t.Context(), store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 10,
		Token: store.NewToken()})
	if err != nil || len(claimed) != 3 || claimed[0].Damage != "" || claimed[1].Damage == "" || claimed[2].Damage != "" {
		t.Fatalf("%+v %v", claimed, err)
	}
	out := []store.Outcome{{Task: &claimed[1], State: store.Discarded, Reason: "damaged"},
		{Task: &claimed[0], State: store.Completed}}
	if lost, err := s.Finish(t.Context(), out); err != nil || len(lost) > 0 {
		t.Error(lost, err)
	}
	if list, err := s.List(t.Context(), store.Filter{}); err != nil || len(list) != 3 {
		t.Error(len(list), err)
	}
	l, err := s.Lead(t.Context(), store.Candidate{ID: store.ID{1}, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Maintain(t.Context(), l.Term); err == nil || !strings.Contains(err.Error(), "tusk_delta") {
		t.Errorf("maintain says nothing of the damaged row: %v", err)
	}
	if err := s.Maintain(t.Context(), l.Term); err != nil {
		t.Errorf("maintain tells of it again: %v", err)
	}
	if n := number(t, s, "select count(*) from tusk_delta"); n != 0 {
		t.Errorf("%d deltas are left", n)
	}
}

// A damaged note does not hide other tasks from lists or from the archive.
func TestADamagedNoteHidesNoTask(t *testing.T) {
	s := fresh(t)
	enqueue(t, s, newTasks(2, "q")...)
	held := claim(t, s, startWorker(t, s), 2)
	done := completed(held)
	for i := range done {
		done[i].Note = &store.Note{ID: held[i].ID, Lease: held[i].Lease, Output: []byte(`"out"`)}
	}
	if lost, err := s.Finish(t.Context(), done); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	if err := s.Maintain(t.Context(), lead(t, s)); err != nil {
		t.Fatal(err)
	}
	exec(t, s, "update tusk_note set body = 'not JSON' order by place, n limit 1")
	listed, err := s.List(t.Context(), store.Filter{Detail: true})
	if err != nil {
		t.Fatal(err)
	}
	due, err := s.Due(t.Context(), store.Retention{Completed: 1}, "", 10)
	if err != nil {
		t.Fatal(err)
	}
	for what, tasks := range map[string][]store.Task{"list": listed, "archive": due.Tasks} {
		if len(tasks) != 2 || tasks[0].Damage != "" || string(tasks[0].Detail.Output) != `"out"` || tasks[1].Damage == "" {
			t.Errorf("%s: %+v", what, tasks)
		}
	}
}

// A damaged list of tasks does not keep other leases from being rescued or swept, or other tasks from being pruned.
func TestDamagedListsHoldUpNoOthers(t *testing.T) {
	s := fresh(t)
	w := startWorker(t, s)
	enqueue(t, s, newTasks(4, "q")...)
	var held []store.Task
	for range 4 {
		held = append(held, claim(t, s, w, 1)...)
	}
	finish(t, s, held[3:])
	term := lead(t, s)
	if err := s.Maintain(t.Context(), term); err != nil {
		t.Fatal(err)
	}
	exec(t, s, "update tusk_lease set spans = 'bad' where token = ?", held[0].Lease[:])
	exec(t, s, "update tusk_lease set spans = concat(spans, 'bad') where token = ?", held[1].Lease[:])
	exec(t, s, "insert into tusk_finished (queue, state, finished_at, seq, refs) values ('q', ?, 1, 1, 'bad')",
		store.Completed)
	if _, err := s.Edit(t.Context(), store.Edit{IDs: []store.ID{held[2].ID},
		Change: store.Change{Op: store.Cancel}}); err != nil {
		t.Fatal(err)
	}
	stops, err := s.Extend(t.Context(), store.Beat{Worker: store.Worker{ID: w, Queues: []string{"q"}}, TTL: time.Hour})
	if err != nil || len(stops) != 1 || stops[0].ID != held[2].ID {
		t.Errorf("extend: %v %v", stops, err)
	}
	if list, err := s.List(t.Context(), store.Filter{States: []store.State{store.Running}}); err != nil || len(list) == 0 {
		t.Error(len(list), err)
	}
	exec(t, s, "update tusk_worker set expires_at = 1")
	rescued, err := s.Rescue(t.Context(), term, 10)
	if err != nil || len(rescued) != 2 || rescued[0].ID != held[1].ID || rescued[1].ID != held[2].ID {
		t.Errorf("rescued %d, %v: want those two whose leases can be read", len(rescued), err)
	}
	exec(t, s, "update tusk_lease set claimed_at = claimed_at - 3600000000")
	if err := s.Maintain(t.Context(), term); err != nil {
		t.Error(err)
	}
	if n := number(t, s, "select count(*) from tusk_lease where length(spans) % 16 <> 0"); n != 2 {
		t.Errorf("%d damaged leases are left, want both", n)
	}
	if n, err := s.Prune(t.Context(), term, store.Retention{Completed: time.Microsecond}, 10); n != 1 || err != nil {
		t.Errorf("pruned %d, %v: want what can be read", n, err)
	}
}

func TestGroupsOfErrorsGoWithTheStatistics(t *testing.T) {
	s := fresh(t)
	if _, err := s.Enqueue(t.Context(), newTasks(2, "q")); err != nil {
		t.Fatal(err)
	}
	tasks, err := s.Claim(t.Context(), store.ClaimRequest{Worker: startWorker(t, s), Queues: []string{"q"}, Limit: 2,
		Token: store.NewToken()})
	if err != nil || len(tasks) != 2 {
		t.Fatal(len(tasks), err)
	}
	out := []store.Outcome{{Task: &tasks[0], State: store.Discarded, Error: "a", Fingerprint: "a"},
		{Task: &tasks[1], State: store.Retryable, Error: "b", Fingerprint: "b", Delay: time.Hour}}
	if lost, err := s.Finish(t.Context(), out); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	l, err := s.Lead(t.Context(), store.Candidate{ID: store.ID{1}, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := s.Prune(t.Context(), l.Term, store.Retention{Discarded: time.Microsecond, Stats: time.Microsecond},
			100); err != nil {
			t.Fatal(err)
		}
	}
	groups, err := s.Errors(t.Context(), store.ErrorFilter{})
	if err != nil || len(groups) != 1 || groups[0].Fingerprint != "b" {
		t.Errorf("%+v %v: want the one that a task has", groups, err)
	}
}
