package rules_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// book is the plainest engine: it holds everything in maps.
type book struct {
	now      time.Time
	tasks    map[store.ID]*rules.Row
	keys     map[rules.KeyName]*rules.Key
	needs    map[store.ID][]rules.OpenNeed
	doubts   []store.ID
	rounds   int // how often Read was called
	attempts map[store.ID][]store.Attempt
}

func newBook() *book {
	return &book{
		now:   time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC),
		tasks: map[store.ID]*rules.Row{}, keys: map[rules.KeyName]*rules.Key{},
		needs: map[store.ID][]rules.OpenNeed{}, attempts: map[store.ID][]store.Attempt{},
	}
}

// Read implements rules.Source.
func (b *book) Read(w *rules.Want) (*rules.Found, error) {
	b.rounds++
	found := &rules.Found{}
	for _, name := range w.Keys {
		if k := b.keys[name]; k != nil {
			found.Keys = append(found.Keys, *k)
		}
	}
	for _, id := range w.Tasks {
		if r := b.tasks[id]; r != nil {
			row := *r
			found.Tasks = append(found.Tasks, &row)
		}
	}
	for _, id := range w.Needs {
		for _, n := range b.needs[id] {
			found.Needs = append(found.Needs, rules.OwnNeed{Child: id, OpenNeed: n})
		}
	}
	for child, needs := range b.needs {
		for _, n := range needs {
			if n.Open && slices.Contains(w.Children, n.Task) {
				found.Children = append(found.Children, rules.Edge{Child: child, Need: n.Need})
			}
		}
	}
	return found, nil
}

// do runs one verb in its own batch and applies the result.
func (b *book) do(verb func(*rules.Batch) error) *rules.Batch {
	batch := rules.New(b.now, b)
	if err := verb(batch); err != nil {
		panic(err)
	}
	b.apply(batch)
	return batch
}

func (b *book) apply(batch *rules.Batch) {
	for _, c := range batch.Changes() {
		if c.After == nil {
			delete(b.tasks, c.Before.ID)
			delete(b.needs, c.Before.ID)
			continue
		}
		row := *c.After
		row.Place, row.Values = 0, false
		b.tasks[row.ID] = &row
	}
	for _, n := range batch.Needs {
		if b.tasks[n.Child] != nil {
			b.needs[n.Child] = append([]rules.OpenNeed(nil), n.Needs...)
		}
	}
	for _, m := range batch.Met {
		for i := range b.needs[m.Child] {
			if n := &b.needs[m.Child][i]; n.Task == m.Parent {
				n.Open = false
			}
		}
	}
	for _, e := range batch.Ends {
		b.attempts[e.Task.ID] = append(b.attempts[e.Task.ID], e.Attempt)
	}
	keys, _ := batch.Keys()
	for _, k := range keys {
		b.keys[k.KeyName] = &k
	}
	b.doubts = append(b.doubts, batch.Doubts...)
}

func id(n int) store.ID { return store.ID{15: byte(n)} }

// enqueue adds one task and returns what became of it.
func (b *book) enqueue(n store.NewTask) (result store.Enqueued) {
	if n.Queue == "" {
		n.Queue = "q"
	}
	n.Kind = "k"
	b.do(func(batch *rules.Batch) error {
		results, err := batch.Enqueue([]store.NewTask{n})
		result = results[0]
		return err
	})
	return result
}

// claim makes an available task running, which no rule does.
func (b *book) claim(n int) {
	r := b.tasks[id(n)]
	if r.State != store.Available {
		panic(fmt.Sprintf("task %d is %v", n, r.State))
	}
	r.State, r.Attempt, r.ClaimedAt, r.Lease = store.Running, r.Attempt+1, b.now, store.Token{1}
}

// finish ends the attempt of a running task.
func (b *book) finish(n int, o store.Outcome) {
	t := b.tasks[id(n)].Task
	o.Task = &t
	if o.Attempt == 0 {
		o.Attempt = t.Attempt
	}
	b.do(func(batch *rules.Batch) error {
		_, err := batch.Finish([]*store.Outcome{&o})
		return err
	})
}

func (b *book) edit(n int, c store.Change) (done store.Edited) {
	b.do(func(batch *rules.Batch) error {
		all, err := batch.Edit([]store.ID{id(n)}, &c)
		done = all[0]
		return err
	})
	return done
}

// doom cancels the doomed tasks, and those that they doom.
func (b *book) doom() (cancelled int) {
	for len(b.doubts) > 0 {
		of := b.doubts[0]
		b.doubts = b.doubts[1:]
		b.do(func(batch *rules.Batch) error {
			did, err := batch.Doom([]store.ID{of})
			cancelled += did
			return err
		})
	}
	return cancelled
}

func (b *book) state(n int) store.State {
	if r := b.tasks[id(n)]; r != nil {
		return r.State
	}
	return 0
}
