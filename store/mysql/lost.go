package mysql

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/tuskqueue/tusk/store"
)

// lost counts the tasks that run by the sums and of which no lease knows: nobody would take those back. To look
// for them one by one would be to read all tasks. What a lease names and cannot be seen yet counts as held, so
// that it never tells too many.
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
				if is, seen := at[ref{r.place, r.n, 0}]; !seen || !is.past(r.lap) {
					lost--
				}
			}
		}
		return err
	})
	return max(lost, 0), err
}

// lostTasks says of those what is to be done. That they cannot be counted is no fault of the server's.
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
