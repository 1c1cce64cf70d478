package mysql

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/tuskqueue/tusk/store"
)

// lost counts the tasks that are running according to the sums but that no lease holds, so that they would never be
// taken back. Searching for them one by one would mean reading all tasks. A task that a lease names but that cannot
// be seen yet counts as held, so lost never returns too many.
func (s *Store) lost(ctx context.Context) (lost int64, err error) {
	err = s.view(ctx, func(w *work) error {
		lost = 0
		var sums delta
		if err := w.deltas(&sums); err != nil {
			return err
		}
		for of, n := range sums.counts {
			if of.state == store.Running {
				lost += n
			}
		}
		err := w.ask(func(rows *sql.Rows) error {
			var tasks int64
			err := rows.Scan(&tasks)
			lost += tasks
			return err
		}, q("count.running"))
		if err != nil {
			return err
		}
		leases, err := w.readLeases(q("lease.all"))
		if err != nil {
			return err
		}
		at, err := w.stages(leases)
		for _, l := range leases {
			for _, r := range refsOf(l.spans) {
				if is, seen := at[r.anyLap()]; !seen || !is.past(r.lap) {
					lost--
				}
			}
		}
		return err
	})
	return max(lost, 0), err
}

// lostTasks returns a warning about lost tasks that says what to do. If they cannot be counted, the server is not at
// fault, so that is only a warning, too.
func (s *Store) lostTasks(ctx context.Context) (warnings []string) {
	switch n, err := s.lost(ctx); {
	case err != nil:
		return []string{fmt.Sprint("tasks that run and that nobody holds cannot be counted: ", err)}
	case n > 0:
		return []string{fmt.Sprintf("tasks that run, and that no lease holds, so that nobody takes them back: %d; "+
			"docs/operations.md says what to do, under Tasks that nobody holds", n)}
	}
	return nil
}
