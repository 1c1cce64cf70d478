package couchbase

import (
	"slices"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/internal/cbfake"
	"github.com/tuskqueue/tusk/store"
)

// failOverAll gives each vbucket another UUID, and loses nothing.
func (r *rig) failOverAll() {
	for vb := range r.f.Vbuckets() {
		r.f.FailOver(vb, 0)
	}
}

// After a failover, no index ever reaches the tokens from before it. A handle that writes nothing more still gets
// answers, and waits only for the first one.
func TestQueriesHaveAnswersAfterAFailover(t *testing.T) {
	for _, c := range []struct {
		name   string
		faults cbfake.Faults
	}{{"a server that heeds scan_wait", cbfake.Faults{}}, {"one that does not", cbfake.Faults{NoScanWait: true}}} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, 1)
			r.b.queryTimeout = 6 * time.Second
			r.add(r.task("now", nil), r.task("later", func(n *store.NewTask) { n.RunAt = time.Now().Add(time.Hour) }))
			r.f.Set(c.faults)
			r.failOverAll()
			for _, ask := range []struct {
				name    string
				queries int64
				do      func() (n int, err error)
				want    int
			}{
				{"list", 2, func() (int, error) {
					tasks, err := r.b.List(r.ctx(), store.Filter{Limit: 10})
					return len(tasks), err
				}, 2},
				{"count", 1, func() (int, error) {
					counts, err := r.b.Count(r.ctx())
					return len(counts), err
				}, 2},
				{"admit", 2, func() (int, error) {
					did, err := r.b.Admit(r.ctx(), r.term, 10)
					return did.Count, err
				}, 0},
			} {
				before := r.f.Queries()
				n, err := ask.do()
				r.must(ask.name, err)
				if asked := r.f.Queries() - before; n != ask.want || asked != ask.queries {
					t.Errorf("%s: %d instead of %d, by %d queries", ask.name, n, ask.want, asked)
				}
			}
			if n := len(r.b.seen.tokens()); n > 0 {
				t.Errorf("%d tokens are left", n)
			}
		})
	}
}

// After the failover, a handle sees its own new writes at once, although the index lags.
func TestWhoWritesSeesItAfterAFailover(t *testing.T) {
	r := newRig(t, 1)
	r.add(r.task("before", nil))
	r.failOverAll()
	if _, err := r.b.Count(r.ctx()); err != nil {
		t.Fatal(err)
	}
	r.f.Set(cbfake.Faults{Lag: time.Hour})
	after := r.task("after", nil)
	r.add(after)
	tasks, err := r.b.List(r.ctx(), store.Filter{Limit: 10})
	r.must("list", err)
	if !slices.ContainsFunc(tasks, func(t store.Task) bool { return t.ID == after.ID }) {
		t.Errorf("it sees %+v", tasks)
	}
}

// If a query that asks for everything fails too, the tokens were not to blame, and stay.
func TestTokensStayWhereTheyWereNotToBlame(t *testing.T) {
	r := newRig(t, 1)
	r.add(r.task("x", nil))
	was := len(r.b.seen.tokens())
	r.f.Set(cbfake.Faults{Stuck: true})
	r.b.queryTimeout = 500 * time.Millisecond
	if _, err := r.b.Count(r.ctx()); err == nil {
		t.Error("there is an answer")
	}
	if is := len(r.b.seen.tokens()); is != was || was == 0 {
		t.Errorf("of %d tokens %d are left", was, is)
	}
}
