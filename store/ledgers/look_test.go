package ledgers_test

import (
	"slices"
	"testing"

	"github.com/tuskqueue/tusk/store/ledgers"
)

// A look finds a task in any ledger, even if no notification of it came, and the next claim begins there. It
// does not look on a lost server.
func TestALookFindsTasksOfWhichNothingWasHeard(t *testing.T) {
	all, dsns := servers(t, 2)
	if err := divide(4, dsns...); err != nil {
		t.Fatal(err)
	}
	s, other := open(t, dsns...), open(t, dsns...)
	w := worker(t, s)
	places := map[int]bool{}
	for range 16 {
		ledgers.Deafen(s)
		n := newTask(nil)
		if seen, err := s.Look(t.Context(), []string{n.Queue}); err != nil || len(seen.Queues) > 0 {
			t.Fatalf("saw tasks in %q, %v: want none", seen.Queues, err)
		}
		added := add(t, other, n)[0].ID
		places[ledgers.Where(t, other, added)] = true
		if seen, err := s.Look(t.Context(), []string{n.Queue, "none"}); err != nil ||
			!slices.Equal(seen.Queues, []string{n.Queue}) {
			t.Fatalf("saw tasks in %q, %v: want %q", seen.Queues, err, n.Queue)
		}
		if tasks := claim(t, s, w, 1); len(tasks) != 1 || tasks[0].ID != added {
			t.Fatalf("claimed %v, want %v", tasks, added)
		}
	}
	if len(places) < 2 {
		t.Errorf("all tasks were in %v", places)
	}
	all[1].Stop()
	eventually(t, "a look tells nothing of a server that is lost", func() bool {
		seen, err := s.Look(t.Context(), []string{"none"})
		return err == nil && len(seen.Queues) == 0
	})
}
