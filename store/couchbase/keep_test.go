package couchbase

import (
	"slices"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/storetest"
)

// If a parent and its children are doomed together, that takes two rounds: the children are cancelled concurrently, and
// none of them waits to be told what it knows already.
func TestRequestsOfADoomedFan(t *testing.T) {
	const children = 900
	r := newRig(t, 1)
	r.b.patience = 20 * time.Second
	parent := r.task("parent", needs(storetest.NewID()))
	tasks := []store.NewTask{parent}
	for range children {
		tasks = append(tasks, r.task("child", needs(parent.ID, storetest.NewID())))
	}
	r.add(tasks...)
	before, begun := r.f.Requests(), time.Now()
	did, err := r.b.Admit(r.ctx(), r.term, 1000)
	r.must("admit", err)
	if n := r.f.Requests() - before; did.Cancelled != children+1 || n > 7*children+20 {
		t.Errorf("%d of %d tasks are cancelled, by %d requests", did.Cancelled, children+1, n)
	} else {
		t.Logf("%d tasks are cancelled by %d requests, in %v", did.Cancelled, n, time.Since(begun))
	}
	if want := "needs task " + parent.ID.String() + ", which is cancelled"; r.get(r.ids["child"]).Reason != want {
		t.Errorf("a child is cancelled since it %s", r.get(r.ids["child"]).Reason)
	}
}

// If a need links two tasks, the one that comes later in the page is in a later round.
func TestRoundsKeepTheOrderOfLinkedTasks(t *testing.T) {
	ids := []string{"b", "a", "c", "d", "e", "gone"}
	docs := make([]*doc, len(ids))
	on := map[string][]int{"a": {0}, "c": {1}, "b": {2}, "e": {4}} // the places of the tasks that they need
	names := make([]store.ID, len(ids))
	for i := range ids[:5] {
		names[i] = storetest.NewID()
	}
	for i, name := range ids[:5] {
		d := blank(taskRef(names[i]))
		for _, at := range on[name] {
			d.task().Needs = append(d.task().Needs, need{Task: names[at]})
		}
		docs[i], ids[i] = d, d.ID
	}
	rounds := roundsOf(docs)
	want := [][]int{{0, 3, 4, 5}, {1}, {2}}
	for i := range want {
		if len(rounds) != len(want) || !slices.Equal(rounds[i], want[i]) {
			t.Fatalf("the rounds are %v", rounds)
		}
	}
}

// Tasks that turn out not to be doomed do not hide those after them from a leader that takes a few at a time.
func TestWhatIsNotDoomedHidesNothing(t *testing.T) {
	r := newRig(t, 1)
	change := func(name string, op store.Op) {
		t.Helper()
		_, err := r.b.Edit(r.ctx(), store.Edit{IDs: []store.ID{r.ids[name]}, Change: store.Change{Op: op}})
		r.must(name, err)
	}
	r.add(r.task("saved", nil), r.task("failed", nil))
	r.add(r.task("child", needs(r.ids["saved"])), r.task("other", needs(r.ids["saved"])))
	r.add(r.task("doomed", needs(r.ids["failed"])))
	change("saved", store.Cancel)
	change("saved", store.Retry)
	change("failed", store.Cancel)
	did, err := r.b.Admit(r.ctx(), r.term, 1)
	r.must("admit", err)
	if is := r.get(r.ids["doomed"]); did.Cancelled != 1 || is.State != store.Cancelled {
		t.Errorf("%d are cancelled, and the doomed one is %v", did.Cancelled, is.State)
	}
	r.drain()
}
