package finish

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tuskqueue/tusk/store"
)

func TestOneOutcomeIsLentAndSomebodyElseWritesIt(t *testing.T) {
	var told []store.ID
	l := &ledger{}
	gathering(t, l, quiet(func(o store.Outcome) { told = append(told, o.Task.ID) }), func(g *Gatherer) {
		if o := g.Lend(); o != nil {
			t.Errorf("lent %v of nothing", o.Task.ID)
		}
		add(g, outcome(1))
		o := g.Lend()
		if o == nil || o.Task.ID != (store.ID{1}) {
			t.Fatalf("lent %+v", o)
		}
		if more := g.Lend(); more != nil {
			t.Errorf("lent %v besides", more.Task.ID)
		}
		time.Sleep(10 * time.Second)
		if l.calls > 0 || len(told) > 0 || g.Age() != 0 {
			t.Errorf("while it is lent: %d writes, told of %v, age %v", l.calls, told, g.Age())
		}
		g.Settle(false, nil)
		if len(told) != 1 {
			t.Errorf("told of %v", told)
		}
		add(g, outcome(2))
		add(g, outcome(3))
		if o := g.Lend(); o != nil {
			t.Errorf("lent %v of two", o.Task.ID)
		}
	})
	if l.taken(1) != 0 || l.taken(2) != 1 || l.taken(3) != 1 || len(told) != 3 {
		t.Errorf("written: %v, told of %v", l.accepted, told)
	}
}

func TestNothingIsLentWhileOthersAreAboutToCome(t *testing.T) {
	o := quiet(func(store.Outcome) {})
	o.Soon = func(time.Duration) int { return 2 }
	gathering(t, &ledger{}, o, func(g *Gatherer) {
		add(g, outcome(1))
		if g.Lend() != nil {
			t.Error("lent")
		}
	})
}

func TestOnlyMereCompletionsAreLent(t *testing.T) {
	for what, change := range map[string]func(*store.Outcome){
		"a failure":  func(o *store.Outcome) { o.State, o.Error = store.Retryable, "boom" },
		"a key":      func(o *store.Outcome) { o.Task.Key = "k" },
		"a note":     func(o *store.Outcome) { o.Note = &store.Note{} },
		"more tasks": func(o *store.Outcome) { o.Then = make([]store.NewTask, 1) },
	} {
		l := &ledger{}
		gathering(t, l, quiet(func(store.Outcome) {}), func(g *Gatherer) {
			o := outcome(1)
			change(&o)
			add(g, o)
			if g.Lend() != nil {
				t.Errorf("%s: lent", what)
			}
		})
		if l.taken(1) != 1 {
			t.Errorf("%s: not written", what)
		}
	}
}

func TestALentOutcomeOfWhichNothingIsKnownIsWrittenLikeAnyOther(t *testing.T) {
	told := 0
	l := &ledger{}
	gathering(t, l, quiet(func(store.Outcome) { told++ }), func(g *Gatherer) {
		add(g, outcome(1))
		if g.Lend() == nil {
			t.Fatal("nothing is lent")
		}
		g.Settle(false, errors.New("no answer"))
		time.Sleep(time.Second)
		synctest.Wait()
		if l.taken(1) != 1 || told != 1 {
			t.Errorf("written %d times, told %d times", l.taken(1), told)
		}
		add(g, outcome(2))
		g.Lend()
		g.Settle(false, errors.New("no answer"))
	})
	if l.taken(2) != 1 {
		t.Error("what came back last is not written")
	}
}

func TestOfALentOutcomeThatIsRefusedTheWorkerIsTold(t *testing.T) {
	var lost map[store.ID]bool
	o := quiet(nil)
	o.Done = func(_ []store.Outcome, refused map[store.ID]bool) { lost = refused }
	gathering(t, &ledger{}, o, func(g *Gatherer) {
		add(g, outcome(1))
		g.Lend()
		g.Settle(true, nil)
	})
	if !lost[store.ID{1}] {
		t.Errorf("refused: %v", lost)
	}
}
