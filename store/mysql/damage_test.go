package mysql_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// What the owner of the tables can put there hides and holds up nothing else.
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
	claimed, err := s.Claim(t.Context(), store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 10, Token: store.NewToken()})
	if err != nil || len(claimed) != 3 || claimed[0].Damage != "" || claimed[1].Damage == "" || claimed[2].Damage != "" {
		t.Fatalf("%+v %v", claimed, err)
	}
	out := []store.Outcome{{Task: &claimed[1], State: store.Discarded, Reason: "damaged"}, {Task: &claimed[0], State: store.Completed}}
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

func TestGroupsOfErrorsGoWithTheStatistics(t *testing.T) {
	s := fresh(t)
	if _, err := s.Enqueue(t.Context(), newTasks(2, "q")); err != nil {
		t.Fatal(err)
	}
	tasks, err := s.Claim(t.Context(), store.ClaimRequest{Worker: startWorker(t, s), Queues: []string{"q"}, Limit: 2, Token: store.NewToken()})
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
		if _, err := s.Prune(t.Context(), l.Term, store.Retention{Discarded: time.Microsecond, Stats: time.Microsecond}, 100); err != nil {
			t.Fatal(err)
		}
	}
	groups, err := s.Errors(t.Context(), store.ErrorFilter{})
	if err != nil || len(groups) != 1 || groups[0].Fingerprint != "b" {
		t.Errorf("%+v %v: want the one that a task has", groups, err)
	}
}
