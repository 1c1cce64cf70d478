package storetest

import (
	"errors"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

var leadClauses = []clause{
	{"lead/a look tells who leads, beside the records of several kinds", func(t *T) {
		engine, ok := store.As[store.Looker](t.Store)
		if !ok {
			t.Skip("the engine is no Looker")
		}
		var began store.Leadership
		look := func(leader store.ID, names ...string) {
			t.Helper()
			seen, err := engine.Look(t.ctx(), nil, "one", "two", "none")
			var got []string
			for _, r := range seen.Records {
				got = append(got, r.Kind+" "+r.Name+" "+string(r.Body))
			}
			slices.Sort(got)
			if err != nil || seen.Leader != leader || !slices.Equal(got, names) {
				t.Errorf("saw %q and leader %v, %v: want %q and %v", got, seen.Leader, err, names, leader)
			}
			if seen.Now.Before(began.Now) || seen.Now.After(began.Now.Add(time.Minute)) {
				t.Errorf("it is %v, said the look after one that said %v", seen.Now, began.Now)
			}
		}
		lead := func(id store.ID, ttl time.Duration) {
			t.Helper()
			l, err := t.Lead(t.ctx(), store.Candidate{ID: id, TTL: ttl})
			if err != nil || ttl > 0 && l.Term == 0 {
				t.Fatal(l, err)
			}
			began = l
		}
		lead(NewID(), 0)
		look(store.ID{})
		for _, r := range []store.Record{
			{Kind: "one", Name: "a"}, {Kind: "one", Name: "b"}, {Kind: "two", Name: "a"}, {Kind: "three", Name: "a"},
		} {
			r.Body = []byte("1")
			if _, err := t.put(r); err != nil {
				t.Fatal(err)
			}
		}
		a, b := NewID(), NewID()
		lead(a, time.Minute)
		look(a, "one a 1", "one b 1", "two a 1")
		lead(a, 0)
		look(store.ID{}, "one a 1", "one b 1", "two a 1")
		lead(b, time.Millisecond)
		time.Sleep(50 * time.Millisecond)
		look(store.ID{}, "one a 1", "one b 1", "two a 1")
	}},
	{"lead/a look tells which queues may have tasks", func(t *T) {
		engine, ok := store.As[store.Looker](t.Store)
		if !ok {
			t.Skip("the engine is no Looker")
		}
		look := func(want ...string) {
			t.Helper()
			seen, err := engine.Look(t.ctx(), []string{"a", "c", "none"}, "none")
			slices.Sort(seen.Queues)
			if err != nil || !slices.Equal(seen.Queues, want) {
				t.Errorf("saw tasks in %q, %v: want %q", seen.Queues, err, want)
			}
		}
		look()
		t.addMany(2, queue("a"))
		t.addOne(queue("c"), priority(-7))
		t.addOne(queue("d"))
		look("a", "c")
		w := t.worker()
		if n := len(t.take(w, 1, "a")); n != 1 {
			t.Fatalf("claimed %d tasks, want one", n)
		}
		look("a", "c")
		if n := len(t.take(w, 10, "a", "c")); n != 2 {
			t.Fatalf("claimed %d tasks, want two", n)
		}
		look()
	}},
	{"lead/one candidate leads, keeps its term, and a successor's term is higher", func(t *T) {
		a, b := NewID(), NewID()
		ask := func(id store.ID, term int64, ttl time.Duration) store.Leadership {
			l, err := t.Lead(t.ctx(), store.Candidate{ID: id, Term: term, TTL: ttl})
			if err != nil {
				t.Fatal(err)
			}
			if d := time.Since(l.Now); d < -time.Minute || d > time.Minute {
				t.Errorf("now is %v", l.Now)
			}
			return l
		}
		first := ask(a, 0, time.Minute).Term
		if first == 0 {
			t.Fatal("nobody leads, and still no")
		}
		if got := ask(b, 0, time.Minute).Term; got != 0 {
			t.Errorf("a second leader, term %d", got)
		}
		if got := ask(a, first, time.Minute).Term; got != first {
			t.Errorf("renewed to %d from %d", got, first)
		}
		ask(a, first, 0)
		second := ask(b, 0, 50*time.Millisecond).Term
		if second <= first {
			t.Errorf("term %d after %d", second, first)
		}
		time.Sleep(100 * time.Millisecond)
		third := ask(a, 0, time.Minute).Term
		if third <= second {
			t.Errorf("term %d after %d ran out", third, second)
		}
		if got := ask(b, second, time.Minute).Term; got != 0 {
			t.Errorf("an old term was renewed to %d", got)
		}
		ask(b, second, 0) // gives up a term that it does not hold
		if got := ask(a, third, time.Minute).Term; got != third {
			t.Errorf("lost to a stranger's resignation: %d", got)
		}
	}},
	{"lead/chores are refused when the term is over or another's", func(t *T) {
		id := NewID()
		l, err := t.Lead(t.ctx(), store.Candidate{ID: id, TTL: 50 * time.Millisecond})
		if err != nil || l.Term == 0 {
			t.Fatal(l, err)
		}
		refused := func(when string, term int64) {
			_, err1 := t.Admit(t.ctx(), term, 1)
			_, err2 := t.Rescue(t.ctx(), term, 1)
			_, err3 := t.Prune(t.ctx(), term, store.Retention{}, 1)
			_, _, err4 := t.PutRecord(t.ctx(), store.PutRecord{Record: store.Record{Kind: "x", Name: "x", Body: []byte(`{}`)},
				Term: term})
			_, err5 := t.Grant(t.ctx(), term, nil)
			all := []error{err1, err2, err3, err4, err5}
			if m, ok := store.As[store.Maintainer](t.Store); ok {
				all = append(all, m.Maintain(t.ctx(), term))
			}
			for i, err := range all {
				if !errors.Is(err, store.ErrNotLeader) {
					t.Errorf("%s: chore %d: %v", when, i, err)
				}
			}
		}
		refused("another term", l.Term+1)
		time.Sleep(100 * time.Millisecond)
		refused("expired", l.Term)
		if t.lead() <= l.Term {
			t.Error("the term did not grow")
		}
		refused("replaced", l.Term)
		if records, _ := t.Records(t.ctx(), store.RecordFilter{Kind: "x"}); len(records) != 0 {
			t.Error("a refused write was stored")
		}
	}},
	{"lead/an overseer names the chores that have something to do", func(t *T) {
		engine, ok := store.As[store.Overseer](t.Store)
		if !ok {
			t.Skip("the engine is no Overseer")
		}
		see := func() store.Chores {
			t.Helper()
			c, err := engine.Oversee(t.ctx(), store.Candidate{Term: t.lead()}, "plan", "other")
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		t.rescue(1) // a new leader looks for tasks that no worker holds
		victim := store.Beat{Worker: store.Worker{ID: NewID()}, TTL: 3 * time.Second, Every: 2 * time.Second}
		if _, err := t.Extend(t.ctx(), victim); err != nil {
			t.Fatal(err)
		}
		t.addOne()
		if c := see(); c.Admit > 0 || c.Rescue || c.Turns || len(c.Records) > 0 {
			t.Errorf("with nothing to do: %+v", c)
		}
		plan := store.PutRecord{Record: store.Record{Kind: "plan", Name: "a", Body: []byte("{}")}}
		if _, _, err := t.PutRecord(t.ctx(), plan); err != nil {
			t.Fatal(err)
		}
		if c := see(); !slices.Equal(c.Records, []string{"plan"}) {
			t.Errorf("with a record of a kind: %+v", c)
		}
		t.addOne(delay(time.Hour))
		if c := see(); c.Admit < 0 || c.Admit > time.Hour {
			t.Errorf("with a task that is due in an hour: %+v", c)
		}
		t.addOne(inTurn("acme", ""))
		if c := see(); !c.Turns {
			t.Errorf("with a task that waits for its turn: %+v", c)
		}
		t.addOne(delay(time.Millisecond))
		t.eventually("a task is due", func() bool { return see().Admit == 0 })
		t.eventually("a worker may be dead", func() bool { return see().Rescue })
		t.eventually("it is dead", func() bool {
			t.rescue(1)
			living, err := t.Workers(t.ctx())
			return err == nil && len(living) == 0
		})
		c, err := engine.Oversee(t.ctx(), store.Candidate{Term: t.lead() + 1})
		if err == nil && !(c.Admit == 0 && c.Rescue && c.Turns) || err != nil && !errors.Is(err, store.ErrNotLeader) {
			t.Errorf("in another term: %+v, %v: want ErrNotLeader, or that each chore is asked for", c, err)
		}
	}},
	{"lead/an overseer that says so has renewed the term, if it still ran", func(t *T) {
		engine, ok := store.As[store.Overseer](t.Store)
		if !ok {
			t.Skip("the engine is no Overseer")
		}
		c := store.Candidate{ID: NewID(), TTL: time.Second}
		l, err := t.Lead(t.ctx(), c)
		if err != nil {
			t.Fatal(err)
		}
		c.Term, c.TTL = l.Term, time.Minute
		now, err := engine.Oversee(t.ctx(), c)
		if err != nil {
			t.Fatal(err)
		}
		if now.Renewed.IsZero() {
			t.Skip("the engine renews no term so")
		}
		if now.Renewed.Before(l.Now) {
			t.Errorf("renewed at %v, after it began at %v", now.Renewed, l.Now)
		}
		time.Sleep(1100 * time.Millisecond)
		other := store.Candidate{ID: NewID(), TTL: time.Minute}
		if l, err := t.Lead(t.ctx(), other); err != nil || l.Term != 0 {
			t.Errorf("another got a term that was renewed: %+v, %v", l, err)
		}
		c.TTL = time.Millisecond
		if _, err := engine.Oversee(t.ctx(), c); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
		c.TTL = time.Minute
		if now, err := engine.Oversee(t.ctx(), c); !errors.Is(err, store.ErrNotLeader) {
			t.Errorf("a term that was over was renewed: %+v, %v", now, err)
		}
	}},
}
