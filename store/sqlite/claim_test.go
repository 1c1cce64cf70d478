package sqlite

import (
	"testing"

	"github.com/tuskqueue/tusk/store"
)

// TestAClaimLooksAtNoMoreLanesThanItNeeds has two tasks of each priority.
func TestAClaimLooksAtNoMoreLanesThanItNeeds(t *testing.T) {
	s := openTest(t)
	mustEnqueue(t, s, tasksOf(20, func(i int, n *store.NewTask) { n.Priority = int16(i / 2) })...)
	for want, lanes := range map[int64]int{0: 0, 1: 1, 2: 1, 3: 2, 4: 2, 5: 3, 100: 10} {
		err := s.write(t.Context(), false, func(w *work) error {
			found, err := w.ready("q", want)
			if len(found) != lanes {
				t.Errorf("%d lanes for %d tasks, want %d", len(found), want, lanes)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}
