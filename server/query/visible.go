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

// Visible lists a page of tasks that sees lets through, and the id after which
// the next page begins; zero: there is none. A page may be short when much is
// not let through, or when few of the tasks that it looked through match.
func Visible(ctx context.Context, client *tusk.Client, sees func(queue, tenant string) bool, f tusk.Filter) (page []tusk.TaskInfo, more tusk.ID, err error) {
	for range maxLooks {
		tasks, next, err := client.Search(ctx, f, ListBudget)
		if err != nil {
			return nil, more, err
		}
		for _, t := range tasks {
			if sees(t.Queue, t.Tenant) {
				page = append(page, t)
			}
			if f.Before = t.ID; len(page) == f.Limit {
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
