package query

import (
	"context"

	"github.com/tuskqueue/tusk"
)

// maxLooks limits how many pages are read for one that is shown.
const maxLooks = 20

// ListBudget is about how many of the newest tasks a page reads if no index finds the matches.
const ListBudget = 20000

// growth is the largest factor by which the number of loaded tasks grows. The next tasks may all be of the maximum
// size.
const growth = 4

// PageBytes is about how many bytes of args a page has. The page then ends early, and the next one continues.
const PageBytes = 6 << 20

// sized limits the number of tasks requested at a time, so that a page stays within PageBytes.
type sized struct{ size, tasks, kept int }

// step returns how many tasks to request next, at most limit.
func (s *sized) step(limit int) int {
	if s.tasks == 0 {
		return min(limit, firstLook)
	}
	return max(1, min(limit, growth*s.tasks, (PageBytes-s.kept)*s.tasks/max(s.size, 1)))
}

// add counts a task, which the page may or may not keep, and reports whether the page is full.
func (s *sized) add(t *tusk.TaskInfo, keep bool) bool {
	size := len(t.Args) + 500
	s.tasks++
	s.size += size
	if keep {
		s.kept += size
	}
	return s.kept >= PageBytes
}

// Visible lists a page of tasks within bounds. It also returns the id after which the next page begins, or zero if
// there is none. A page may be short if much is out of bounds, if few of the tasks that it read match, or if they are
// large.
func Visible(
	ctx context.Context, client *tusk.Client, within Bounds, f tusk.Filter,
) (page []tusk.TaskInfo, more tusk.ID, err error) {
	if !narrow(&f, within) {
		return nil, more, nil
	}
	var s sized
	limit := f.Limit
	for s.tasks < maxLooks*limit {
		f.Limit = s.step(limit)
		tasks, next, err := client.Search(ctx, f, ListBudget)
		if err != nil {
			return nil, more, err
		}
		for i, t := range tasks {
			seen := within.Sees(t.Queue, t.Tenant)
			full := s.add(&t, seen)
			if seen {
				page = append(page, t)
			}
			if f.Before = t.ID; len(page) == limit || full {
				if i == len(tasks)-1 && next.IsZero() {
					return page, next, nil
				}
				return page, t.ID, nil
			}
		}
		if more = next; next.IsZero() || len(tasks) < f.Limit {
			return page, next, nil
		}
		f.Before = next
	}
	return page, more, nil
}
