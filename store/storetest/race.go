package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tuskqueue/tusk/store"
)

var raceClauses = []clause{
	{"race/many claimers on many handles share the tasks without doubles or losses", func(t *T) {
		const claimers, n = 8, 2000
		var mu sync.Mutex
		seen := map[store.ID]int{}
		var done atomic.Bool
		var all, adding sync.WaitGroup
		for range claimers {
			s, worker := t.another(), t.worker()
			all.Go(func() {
				for {
					last := done.Load()
					tasks := t.takeFrom(s, worker, 37)
					mu.Lock()
					for _, task := range tasks {
						seen[task.ID]++
					}
					mu.Unlock()
					if len(tasks) > 0 {
						var outcomes []store.Outcome
						for i := range tasks {
							outcomes = append(outcomes, to(store.Completed, &tasks[i]))
						}
						if lost, err := finish(t.ctx(), s, outcomes); err != nil || len(lost) > 0 {
							t.Errorf("lost %d, %v", len(lost), err)
						}
					} else if last {
						return
					}
				}
			})
		}
		for range 4 {
			s := t.another()
			adding.Go(func() {
				for left := n / 4; left > 0; left -= 25 {
					batch := make([]store.NewTask, 25)
					for i := range batch {
						batch[i] = newTask(priority(int16(i % 3)))
					}
					if _, err := s.Enqueue(t.ctx(), batch); err != nil {
						t.Errorf("%v", err)
					}
				}
			})
		}
		adding.Wait()
		done.Store(true)
		all.Wait()
		for id, times := range seen {
			if times != 1 {
				t.Errorf("%v was claimed %d times", id, times)
			}
		}
		if len(seen) != n {
			t.Errorf("claimed %d of %d", len(seen), n)
		}
		if left := t.counts(); len(left) != 0 {
			t.Errorf("left %v", left)
		}
	}},
	{"race/a whole queue gets another priority while workers claim from it", func(t *T) {
		const claimers, n = 4, 800
		ids := t.addMany(n)
		var mu sync.Mutex
		seen := map[store.ID]int{}
		var edited atomic.Bool
		// closed when some tasks have been edited; until then half of them are left alone
		begun := make(chan struct{})
		begin := sync.OnceFunc(func() { close(begun) })
		// so that no goroutine is left behind when an edit fails
		defer func() {
			begin()
			edited.Store(true)
		}()
		var all sync.WaitGroup
		for range claimers {
			s, worker := t.another(), t.worker()
			all.Go(func() {
				for last := false; ; last = edited.Load() {
					tasks := t.takeFrom(s, worker, 7)
					if len(tasks) == 0 && last {
						return
					}
					mu.Lock()
					for _, task := range tasks {
						seen[task.ID]++
					}
					half := len(seen) > n/2
					mu.Unlock()
					if half {
						<-begun
					}
					for i := range tasks {
						if lost, err := finish(t.ctx(), s, []store.Outcome{to(store.Completed, &tasks[i])}); err != nil || len(lost) > 0 {
							t.Errorf("lost %d, %v", len(lost), err)
						}
					}
				}
			})
		}
		changed := 0
		for i := n; i > 0; i -= 100 { // the tasks that are claimed last come first
			for _, e := range t.edit(store.Change{Op: store.Reprioritize, Priority: int16(i/100) - 3}, ids[i-100:i]...) {
				if e.Result == store.Changed {
					changed++
				}
			}
			begin()
		}
		edited.Store(true)
		all.Wait()
		for _, id := range ids {
			if seen[id] != 1 {
				t.Errorf("%v was claimed %d times", id, seen[id])
			}
		}
		if changed == 0 {
			t.Error("no task got another priority in time")
		}
		if left := t.counts(); len(left) != 0 {
			t.Errorf("left %v", left)
		}
	}},
	{"race/a key never has two unfinished tasks", func(t *T) {
		const handles, rounds = 6, 20
		worker := t.worker()
		for round := range rounds {
			name := fmt.Sprint("key-", round)
			var added atomic.Int64
			var all sync.WaitGroup
			for i := range handles {
				s := t.another()
				all.Go(func() {
					o := []store.OnConflict{store.Skip, store.Replace, store.Rerun, store.Once}[i%4]
					results, err := s.Enqueue(t.ctx(), []store.NewTask{newTask(key(name), conflict(o))})
					if err != nil {
						t.Errorf("%v", err)
					} else if results[0].Result == store.Added {
						added.Add(1)
					}
				})
			}
			all.Wait()
			if n := added.Load(); n != 1 {
				t.Fatalf("%d enqueues added a task", n)
			}
		}
		if got := t.take(worker, 1000); len(got) != rounds {
			t.Errorf("%d tasks for %d keys", len(got), rounds)
		}
	}},
	{"race/of many finishes of one attempt one is accepted", func(t *T) {
		const rivals = 6
		worker := t.worker()
		for range 10 {
			t.addOne()
			task := t.takeOne(worker)
			var accepted atomic.Int64
			var all sync.WaitGroup
			for i := range rivals {
				s := t.another()
				all.Go(func() {
					o := to([]store.State{store.Completed, store.Discarded, store.Cancelled}[i%3], task)
					lost, err := finish(t.ctx(), s, []store.Outcome{o})
					if err != nil {
						t.Errorf("%v", err)
					} else if len(lost) == 0 {
						accepted.Add(1)
					}
				})
			}
			all.Wait()
			if n := accepted.Load(); n != 1 {
				t.Fatalf("%d finishes were accepted", n)
			}
		}
	}},
	{"race/a finish meets the commit of a user's transaction that ended the same attempt", func(t *T) {
		t.transactor()
		const n, rounds = 200, 12
		worker, other := t.worker(), t.another()
		var took atomic.Int64
		for range rounds {
			t.addMany(n)
			tasks := t.take(worker, n)
			last := &tasks[n-1]
			tx, commit, _ := t.begin()
			if lost, err := tx.Finish(t.ctx(), []store.Outcome{to(store.Completed, last)}); err != nil || len(lost) != 0 {
				t.Fatal(lost, err)
			}
			outcomes := []store.Outcome{failed(last, store.Retryable, "the answer to the commit was lost")}
			outcomes[0].Note = &store.Note{Output: []byte(`"refused"`), Progress: &store.Progress{Percent: 7}}
			for i := range tasks[:n-1] {
				outcomes = append(outcomes, to(store.Completed, &tasks[i]))
			}
			var all sync.WaitGroup
			all.Go(func() {
				for begun := time.Now(); ; { // an error says that the transaction holds it
					lost, err := other.Finish(t.ctx(), outcomes)
					if err == nil && !slices.Contains(lost, last.ID) {
						t.Error("the attempt was accepted twice")
					}
					if took.Store(int64(time.Since(begun))); err == nil || time.Since(begun) > 30*time.Second {
						return
					}
				}
			})
			time.Sleep(time.Duration(rand.Int64N(took.Load() + 1)))
			commit()
			all.Wait()
			if d := t.is(last.ID, store.Completed).Detail; d.Output != nil || d.Progress != nil || len(d.Attempts) != 1 {
				t.Fatalf("what was refused has left something behind: %+v", d)
			}
			if left := t.counts(); len(left) != 0 {
				t.Fatalf("left %v", left)
			}
		}
	}},
	{"race/of a finish and a user's transaction that end the same attempt one is accepted", func(t *T) {
		t.transactor()
		const rounds = 16
		worker, other := t.worker(), t.another()
		for round := range rounds {
			t.addMany(3)
			tasks := t.take(worker, 3)
			var flushed, inside []store.ID
			var all sync.WaitGroup
			all.Go(func() {
				var err error
				for begun := time.Now(); time.Since(begun) < 30*time.Second; {
					if flushed, err = other.Finish(t.ctx(), []store.Outcome{failed(&tasks[1], store.Retryable, "x")}); err == nil {
						return
					}
				}
				t.Errorf("finish: %v", err)
			})
			tx, commit, _ := t.begin()
			inside, err := tx.Finish(t.ctx(), []store.Outcome{to(store.Completed, &tasks[1])})
			if err != nil {
				t.Fatal(err)
			}
			commit()
			all.Wait()
			if len(flushed)+len(inside) != 1 {
				t.Fatalf("round %d: the finish lost %d, the transaction lost %d", round, len(flushed), len(inside))
			}
			want := store.Completed
			if len(inside) == 1 {
				want = store.Retryable
			}
			t.is(tasks[1].ID, want)
			t.clear(worker, "q")
		}
	}},
	{"race/a rerun is never lost, however it meets the end of the run", func(t *T) {
		worker := t.worker()
		other := t.another()
		for round := range 40 {
			name := fmt.Sprint("key-", round)
			t.addOne(key(name), conflict(store.Rerun), source(1), args(`1`))
			task := t.takeOne(worker)
			var all sync.WaitGroup
			all.Go(func() {
				for version := int64(2); version <= 3; version++ {
					n := newTask(key(name), conflict(store.Rerun), source(version), args(fmt.Sprint(version)))
					if _, err := other.Enqueue(t.ctx(), []store.NewTask{n}); err != nil {
						t.Errorf("%v", err)
					}
				}
			})
			all.Go(func() {
				if round%2 == 0 {
					t.mustEnd(to(store.Completed, task))
				} else {
					o := failed(task, store.Retryable, "x")
					o.Delay = time.Hour
					t.mustEnd(o)
				}
			})
			all.Wait()
			newest := ""
			for range 3 {
				for _, next := range t.take(worker, 10) {
					if string(next.Args) <= newest {
						t.Fatalf("args %s after %s", next.Args, newest)
					}
					newest = string(next.Args)
					t.mustEnd(to(store.Completed, &next))
				}
			}
			if newest != `3` {
				t.Fatalf("round %d: the last run had %q", round, newest)
			}
			t.clear(worker, "q")
		}
	}},
	{"race/of many candidates one leads at any instant", func(t *T) {
		var mu sync.Mutex
		reigns := map[int64]store.ID{}
		var all sync.WaitGroup
		begun := time.Now()
		goOn := func() bool {
			mu.Lock()
			defer mu.Unlock()
			took := time.Since(begun)
			return took < 400*time.Millisecond || len(reigns) < 2 && took < 10*time.Second
		}
		for range 6 {
			s, id := t.another(), NewID()
			all.Go(func() {
				var term int64
				for round := 0; goOn(); round++ {
					l, err := s.Lead(t.ctx(), store.Candidate{ID: id, Term: term, TTL: 30 * time.Millisecond})
					if err != nil {
						t.Errorf("%v", err)
						return
					}
					if term = l.Term; term != 0 {
						mu.Lock()
						if owner, ok := reigns[term]; ok && owner != id {
							t.Errorf("term %d has two leaders", term)
						}
						reigns[term] = id
						mu.Unlock()
						if round%5 == 4 {
							time.Sleep(40 * time.Millisecond) // sleep past its end
						}
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
		all.Wait()
		if len(reigns) < 2 {
			t.Errorf("only %d terms", len(reigns))
		}
	}},
	{"race/edits meet claims: a task is cancelled or claimed, never both", func(t *T) {
		worker := t.worker()
		other := t.another()
		for range 15 {
			ids := t.addMany(10)
			var claimed []store.Task
			var edited []store.Edited
			var all sync.WaitGroup
			all.Go(func() { claimed = t.take(worker, 10) })
			all.Go(func() {
				var err error
				if edited, err = other.Edit(t.ctx(), store.Edit{IDs: ids, Change: store.Change{Op: store.Cancel}}); err != nil {
					t.Errorf("%v", err)
				}
			})
			all.Wait()
			held := map[store.ID]bool{}
			for _, task := range append(claimed, t.take(worker, 10)...) {
				held[task.ID] = true
			}
			for _, e := range edited {
				if e.Result == store.Changed && held[e.ID] || e.Result == store.Requested && !held[e.ID] {
					t.Errorf("%+v, claimed %v", e, held[e.ID])
				}
			}
			t.clear(worker, "q")
		}
	}},
}
