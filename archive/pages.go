package archive

import (
	"context"
	"iter"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// A page is asked for by a number of tasks that makes it about pageMemory large, by the size of
// the page before.
const (
	pageMemory = 1 << 20
	pageMost   = 5000
	pageFirst  = 100
)

// pages returns the first page and those after it. While one is used, the next is read. Between
// two, others have the database to themselves for a while if they need it.
func (r *Runner) pages(ctx context.Context, keep store.Retention, page store.Due) iter.Seq2[store.Due, error] {
	type answer struct {
		page store.Due
		err  error
	}
	return func(yield func(store.Due, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		r.reading.start()
		for limit := pageFirst; ; {
			limit = fitting(limit, &page)
			from, next := page.Next, make(chan answer, 1)
			if from != "" {
				go func() {
					begun := time.Now()
					page, err := r.engine.Due(ctx, keep, from, limit)
					r.reading.add(time.Since(begun), sizeOf(&page))
					next <- answer{page, err}
				}()
			}
			more := yield(page, nil)
			if from == "" {
				return
			}
			if !more {
				cancel()
			}
			a := <-next
			if !more {
				return
			}
			if a.err == nil {
				a.err = r.reading.rest(ctx)
			}
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
	size := sizeOf(page)
	if size == 0 {
		return limit
	}
	return min(max(len(page.Tasks)*pageMemory/size, 1), pageMost, limit*4)
}

// sizeOf is about how many bytes the tasks of a page take in memory.
func sizeOf(page *store.Due) (size int) {
	for i := range page.Tasks {
		t := &page.Tasks[i]
		size += rowSize + len(t.Args)
		if t.Detail != nil {
			size += len(t.Detail.Output)
		}
	}
	return size
}
