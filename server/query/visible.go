package query

import (
	"context"

	"github.com/tuskqueue/tusk"
)

// maxLooks bounds how many pages are looked through for one that is shown.
const maxLooks = 20

// ListBudget is how many of the newest tasks a page looks through, about, where no
// index finds what matches.
const ListBudget = 20000

// growth is how many times as many tasks as before are loaded at most: the next may all be
// as large as tasks can be.
const growth = 4

// PageBytes is about how much args a page has: it ends early, and the next goes on.
const PageBytes = 6 << 20

// sized asks for as many tasks at a time as keep a page within PageBytes.
type sized struct{ size, tasks, kept int }

// step is how many tasks to ask for next, at most so many.
func (s *sized) step(limit int) int {
	if s.tasks == 0 {
		return min(limit, firstLook)
	}
	return max(1, min(limit, growth*s.tasks, (PageBytes-s.kept)*s.tasks/max(s.size, 1)))
}

// add counts a task, which the page keeps or not, and reports whether it is full.
func (s *sized) add(t *tusk.TaskInfo, keep bool) bool {
	size := len(t.Args) + 500
	s.tasks++
	s.size += size
	if keep {
		s.kept += size
	}
	return s.kept >= PageBytes
}

// Visible lists a page of tasks within bounds, and the id after which
// the next page begins; zero: there is none. A page may be short when much is
// out of bounds, when few of the tasks that it looked through match, or when
// they are large.
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
