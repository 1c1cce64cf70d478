package archive

import (
	"context"
	"iter"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// The number of tasks that a page asks for depends on the size of the previous page, so that a page
// takes about pageMemory bytes.
const (
	pageMemory = 1 << 20
	pageMost   = 5000
	pageFirst  = 100
)

// answer is a page, or the error instead of it.
type answer struct {
	page store.Due
	err  error
}

// pages returns the first page and those after it. While the caller uses a page, the next ones are
// read: one is being read and one waits.
func (r *Runner) pages(ctx context.Context, keep store.Retention, first store.Due) iter.Seq2[store.Due, error] {
	return func(yield func(store.Due, error) bool) {
		reading, cancel := context.WithCancel(ctx)
		answers := make(chan answer, 1)
		go r.readOn(reading, keep, first, answers)
		defer func() {
			cancel()
			for range answers {
			}
		}()
		if !yield(first, nil) {
			return
		}
		for a := range answers {
			if !yield(a.page, a.err) {
				return
			}
		}
		if err := ctx.Err(); err != nil { // ctx ended, so there may be more
			yield(store.Due{}, err)
		}
	}
}

// firstDue returns the first page with tasks, or a page without any if nothing is due. Pages before it may be empty, as
// those of a ledger are in which nothing is due.
func (r *Runner) firstDue(ctx context.Context, keep store.Retention, limit int) (store.Due, error) {
	for from := ""; ; {
		due, err := r.engine.Due(ctx, keep, from, limit)
		if err != nil || len(due.Tasks) > 0 || due.Next == "" {
			return due, err
		}
		from = due.Next
	}
}

// foundNothing sets when to look again after a look that found nothing due.
func (r *Runner) foundNothing() {
	r.empty = min(max(2*r.empty, soon), rarely)
	r.next = time.Now().Add(min(r.o.Every, r.empty))
}

// readOn reads the pages after one, until an error or the end of ctx. Between two pages it leaves
// the database to others for a while if they need it.
func (r *Runner) readOn(ctx context.Context, keep store.Retention, page store.Due, answers chan<- answer) {
	defer close(answers)
	r.reading.start()
	for limit := pageFirst; page.Next != ""; {
		if r.reading.rest(ctx) != nil {
			return
		}
		limit = fitting(limit, &page)
		begun := time.Now()
		next, err := r.engine.Due(ctx, keep, page.Next, limit)
		r.reading.add(time.Since(begun), sizeOf(&next))
		select {
		case answers <- answer{next, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
		page = next
	}
}

// fitting returns how many tasks to ask for after a page that was limited to limit.
func fitting(limit int, page *store.Due) int {
	size := sizeOf(page)
	if size == 0 {
		return limit
	}
	return min(max(len(page.Tasks)*pageMemory/size, 1), pageMost, limit*4)
}

// sizeOf returns roughly how many bytes the tasks of a page take in memory.
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
