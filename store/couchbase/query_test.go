package couchbase

import (
	"errors"
	"slices"
	"strings"
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

// After a failover, each query has its answer at once.
func TestQueriesHaveAnswersAfterAFailover(t *testing.T) {
	r := newRig(t, 1)
	r.add(r.task("now", nil), r.task("later", func(n *store.NewTask) { n.RunAt = time.Now().Add(time.Hour) }))
	r.failOverAll()
	for _, ask := range []struct {
		name    string
		queries int64
		do      func() (n int, err error)
		want    int
	}{
		{"list", 1, func() (int, error) {
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
}

// Everybody sees at once what a handle has written, although the index lags, also after a failover.
func TestWhatWasWrittenIsSeenAtOnce(t *testing.T) {
	r := newRig(t, 1)
	r.add(r.task("before", nil))
	r.failOverAll()
	r.f.Set(cbfake.Faults{Lag: time.Hour})
	after := r.task("after", nil)
	r.add(after)
	for _, s := range []*Store{r.a, r.b, openFake(t, r.f)} {
		tasks, err := s.List(r.ctx(), store.Filter{Limit: 10})
		r.must("list", err)
		if !slices.ContainsFunc(tasks, func(t store.Task) bool { return t.ID == after.ID }) {
			t.Errorf("it sees %+v", tasks)
		}
	}
}

// An index that does not catch up is no answer.
func TestAnIndexThatStaysBehind(t *testing.T) {
	r := newRig(t, 1)
	r.add(r.task("x", nil))
	r.f.Set(cbfake.Faults{Stuck: true})
	r.b.queryTimeout = 500 * time.Millisecond
	if counts, err := r.b.Count(r.ctx()); err == nil {
		t.Errorf("the answer is %+v", counts)
	}
}

// A query without its index fails at once, and the error says what to do.
func TestAQueryOfAMissingIndex(t *testing.T) {
	r := newRig(t, 1)
	r.f.DropIndex("tusk", "tusk_due")
	begun := time.Now()
	_, err := r.b.Admit(r.ctx(), r.term, 10)
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "tusk doctor") {
		t.Errorf("the error is %v", err)
	}
	if took := time.Since(begun); took > answerWithin/2 {
		t.Errorf("it took %v", took)
	}
}
