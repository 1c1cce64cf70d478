package couchbase

import (
	"testing"

	"github.com/tuskqueue/tusk/store"
)

// A cursor was lost, and others have begun the lane again, far before the page that a handle last appended to. A claim
// of this handle reads each page on the way once. If the way is too long, the sweep finds the tasks.
func TestACursorFarBehindIsMovedAtOnce(t *testing.T) {
	for _, tail := range []int{200, 1000, 3000, 50_000} {
		r := newRig(t, 1)
		r.add(r.task("before", nil))
		r.claim()
		l := lane{"q", 0}
		_, err := r.a.makePage(r.ctx(), l, tail)
		r.must("make a page", err)
		r.a.minds.appended(l, tail)
		r.a.minds.forget(l)
		_, err = r.a.Enqueue(r.ctx(), []store.NewTask{r.task("x", nil)})
		r.must("enqueue", err)
		for _, id := range []string{l.page(1), l.cursor()} {
			_, err = r.a.lines.Remove(id, nil)
			r.must("remove", err)
		}
		other := openFake(t, r.f)
		_, err = other.open(r.ctx(), l)
		r.must("open", err)
		before, near := r.f.Requests(), tail <= mostSkipped
		got := r.take(r.a, r.worker, 5)
		if n := r.f.Requests() - before; int(n) > max(min(tail, mostSkipped), mostGap)+30 {
			t.Errorf("tail %d: the claim takes %d requests", tail, n)
		}
		if (len(got) == 1) != near {
			t.Errorf("tail %d: %d are claimed", tail, len(got))
		}
		_, err = r.b.sweep(r.ctx(), 0)
		r.must("sweep", err)
		if got = append(got, r.take(r.a, r.worker, 5)...); len(got) != 1 {
			t.Errorf("tail %d: %d are claimed after a sweep", tail, len(got))
		}
		_, err = r.a.Enqueue(r.ctx(), []store.NewTask{r.task("y", nil)})
		r.must("enqueue", err)
		if got = r.take(r.a, r.worker, 5); len(got) != 1 {
			t.Errorf("tail %d: %d are claimed afterwards", tail, len(got))
		}
	}
}
