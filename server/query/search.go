package query

import (
	"context"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/argmatch"
	"github.com/tuskqueue/tusk/store"
)

// A search in args reads tasks, because no index helps. So it needs a time window, and each page has a budget of
// rows, bytes and time. If a page ends early, the next one continues from there.
const (
	SearchBudget = 5000
	SearchTime   = 150 * time.Millisecond
	SearchWindow = 31 * 24 * time.Hour

	searchBytes = 64 << 20
	firstLook   = 25      // tasks of a list that are loaded before their size is known
	firstSearch = 4       // the same for a search
	lookBytes   = 8 << 20 // args requested at a time, approximately
)

// Page is a page of a list.
type Page struct {
	Tasks  []tusk.TaskInfo
	More   tusk.ID // where to continue; zero if there is nothing more
	Looked int     // how many tasks within the bounds a search has looked through

	Read int // how many it has read; not shown to anybody with bounds
}

// Find lists a page of the tasks that match and are within bounds. show returns the visible part of args, which is
// the part that is searched.
func (q Tasks) Find(
	ctx context.Context, client *tusk.Client, within Bounds, f tusk.Filter, show func(args []byte) []byte,
) (p Page, err error) {
	if q.Args == "" {
		p.Tasks, p.More, err = Visible(ctx, client, within, f)
		return p, err
	}
	if !narrow(&f, within) {
		return p, nil
	}
	matches := argmatch.Matcher(q.Args)
	limit, looked, size, begun := f.Limit, 0, 0, time.Now()
	f.Limit = firstSearch
	var kept sized
	for looked < SearchBudget && size < searchBytes && time.Since(begun) < SearchTime {
		f.Limit = min(f.Limit, SearchBudget-looked)
		tasks, more, err := client.Search(ctx, f, ListBudget)
		if err != nil {
			return p, err
		}
		for _, t := range tasks {
			looked++
			p.Read = looked
			size += len(t.Args)
			if !within.Sees(t.Queue, t.Tenant) {
				continue
			}
			if p.Looked++; matches(show(t.Args)) {
				p.Tasks = append(p.Tasks, t)
				if full := kept.add(&t, true); len(p.Tasks) == limit || full {
					p.More = t.ID
					return p, nil
				}
			}
		}
		if p.More, f.Before = more, more; more.IsZero() || len(tasks) < f.Limit {
			return p, nil
		}
		left := max(SearchTime-time.Since(begun), 0)
		inTime := int(left * time.Duration(looked) / (time.Since(begun) + 1))
		f.Limit = max(1, min(store.MaxPage, growth*looked, lookBytes/(size/looked+1), inTime))
	}
	return p, nil
}

// checkArgs rejects a search in args that is not limited enough.
func (q Tasks) checkArgs(from, now time.Time) error {
	switch {
	case q.Args == "":
		return nil
	case from.IsZero():
		return &Error{"from", "window_missing", "a search in args needs a time window: say since when, such as 24h"}
	case now.Sub(from) > SearchWindow+time.Hour:
		return &Error{"from", "window_too_large",
			fmt.Sprintf("a search in args looks back %d days at most", SearchWindow/(24*time.Hour))}
	case len(q.Args) > MaxSearch:
		return &Error{"args", "filter_too_complex", fmt.Sprintf("has more than %d bytes", MaxSearch)}
	}
	return nil
}

// Indexed rejects a query that only a search can answer. It is for changes of all matching tasks.
func (q Tasks) Indexed() error {
	if q.Args != "" {
		return &Error{"args", "not_for_operations", "what is found in args can only be changed by selecting the tasks"}
	}
	return nil
}
