package archive

import (
	"context"
	"iter"

	"github.com/tuskqueue/tusk/store"
)

// A page is asked for by a number of tasks that makes it about pageMemory large, by the size of
// the page before.
const (
	pageMemory = 2 << 20
	pageMost   = 5000
	pageFirst  = 100
)

// pages returns the first page and those after it. While one is used, the next is read, but where
// it is time to look whether others need the database.
func (r *Runner) pages(ctx context.Context, keep store.Retention, page store.Due) iter.Seq2[store.Due, error] {
	type answer struct {
		page store.Due
		err  error
	}
	return func(yield func(store.Due, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		for limit := pageFirst; ; {
			limit = fitting(limit, &page)
			from, next, rest := page.Next, make(chan answer, 1), r.pace.due()
			read := func() {
				page, err := r.engine.Due(ctx, keep, from, limit)
				next <- answer{page, err}
			}
			if from != "" && !rest {
				go read()
			}
			more := yield(page, nil)
			if from == "" || !more && rest {
				return
			}
			if !more {
				cancel()
				<-next
				return
			}
			if rest {
				if err := r.rest(ctx); err != nil {
					yield(store.Due{}, err)
					return
				}
				read()
			}
			a := <-next
			if a.err != nil {
				yield(store.Due{}, a.err)
				return
			}
			page = a.page
		}
	}
}

// fitting returns how many tasks the page after a page should have, which had limit at most.
func fitting(limit int, page *store.Due) int {
	size := 0
	for i := range page.Tasks {
		t := &page.Tasks[i]
		size += rowSize + len(t.Args)
		if t.Detail != nil {
			size += len(t.Detail.Output)
		}
	}
	if size == 0 {
		return limit
	}
	return min(max(len(page.Tasks)*pageMemory/size, 1), pageMost, limit*4)
}
