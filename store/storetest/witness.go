package storetest

import (
	"sync"
	"time"

	"github.com/tuskqueue/tusk/store"
)

const often = 50 * time.Millisecond // how often a worker beats here

// witnessed opens a handle whose end the engine sees, like that of a process.
func (t *T) witnessed() store.Store {
	t.Helper()
	s := t.another()
	t.mustWitness(s)
	return s
}

// mustWitness skips the clause if the engine detects no deaths, which it may know only after it has checked its
// connection.
func (t *T) mustWitness(s store.Store) {
	if w, ok := store.As[store.Witness](s); !ok || !w.Witnesses() {
		t.Skip("the engine is no Witness")
	}
}

// beatOn sends a beat for a worker that says how often it beats.
func (t *T) beatOn(s store.Store, id store.ID) {
	t.Helper()
	w := store.Worker{ID: id, Host: "host", PID: 1, Queues: []string{"q"}}
	if _, err := s.Extend(t.ctx(), store.Beat{Worker: w, TTL: 10 * time.Minute, Every: often}); err != nil {
		t.Errorf("extend: %v", err)
	}
}

var witnessClauses = []clause{
	{"witness/a worker whose process has gone is dead long before its lease is over", func(t *T) {
		s, id := t.witnessed(), NewID()
		t.beatOn(s, id)
		t.addOne()
		task := t.takeFrom(s, id, 1)
		// The witness's connection may not be there yet, so it ends only after a few beats.
		for range 20 {
			time.Sleep(often)
			t.beatOn(s, id)
		}
		t.mustWitness(s)
		s.(interface{ Close() error }).Close()
		t.eventually("the worker is dead", func() bool { return len(t.rescue(10)) > 0 })
		if got := t.rescue(10); len(task) != 1 || len(got) != 1 || got[0].ID != task[0].ID || got[0].Worker != id {
			t.Errorf("rescued %+v", got)
		}
		t.mustEnd(to(store.Available, &t.rescue(10)[0]))
		t.takeOne(t.worker())
	}},
	{"witness/a worker that is late lives while its connection does, and one that left it while it beats", func(t *T) {
		late, beating := t.witnessed(), t.witnessed()
		a, b := NewID(), NewID()
		t.beatOn(late, a)
		t.beatOn(beating, b)
		t.addMany(2)
		if n := len(t.takeFrom(late, a, 1)) + len(t.takeFrom(beating, b, 1)); n != 2 {
			t.Fatalf("claimed %d", n)
		}
		for range 20 {
			time.Sleep(often)
			t.beatOn(beating, b)
		}
		beating.(interface{ Close() error }).Close()
		beats := make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() { // another process may send beats for it: only the beat counts
			for {
				select {
				case <-beats:
					return
				case <-time.After(often / 5):
					w := store.Worker{ID: b, Host: "host", PID: 1}
					if _, err := t.Extend(t.ctx(), store.Beat{Worker: w, TTL: 10 * time.Minute, Every: time.Second}); err != nil {
						t.Errorf("extend: %v", err)
					}
				}
			}
		})
		for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(often) {
			if got := t.rescue(10); len(got) > 0 {
				t.Errorf("%v of a living worker was rescued", got[0].ID)
				break
			}
		}
		close(beats)
		all.Wait()
	}},
}
