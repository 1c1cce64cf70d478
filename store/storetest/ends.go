package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// historian returns the engine's Historian and follows from now on. It skips the clause if the engine is not a
// Historian.
func (t *T) historian() (h store.Historian, cursor string) {
	t.Helper()
	h, ok := store.As[store.Historian](t.Store)
	if !ok {
		t.Skip("the engine is no Historian")
	}
	cursor, err := h.Follow(t.ctx(), true)
	if err != nil {
		t.Fatal(err)
	}
	return h, cursor
}

// told does the leader's housekeeping and reads ends from a cursor until none arrives for a moment. It returns the
// ends of each task, in order, as words.
func (t *T) told(h store.Historian, cursor *string, names map[store.ID]string, limit int) string {
	t.Helper()
	return t.toldAfter(t.maintain, h, cursor, names, limit)
}

// toldAfter is like told, with other housekeeping or none.
func (t *T) toldAfter(chores func(), h store.Historian, cursor *string, names map[store.ID]string, limit int) string {
	t.Helper()
	var words []string
	for quiet := 0; quiet < 3; {
		chores()
		page, err := h.Ended(t.ctx(), *cursor, limit)
		if err != nil {
			t.Fatal(err)
		}
		if *cursor = page.Cursor; len(page.Ends) == 0 {
			quiet++
			time.Sleep(20 * time.Millisecond)
			continue
		}
		for _, e := range page.Ends {
			word := fmt.Sprintf("%s:%v", names[e.Task], e.State)
			if e.Rescued {
				word += "!"
			}
			if age := time.Since(e.At); age > time.Minute || age < -time.Minute {
				t.Errorf("%s ended %v ago", word, age)
			}
			words = append(words, word)
		}
	}
	slices.Sort(words)
	return strings.Join(slices.Compact(words), " ")
}

// maintain does the leader's housekeeping, if the engine has any.
func (t *T) maintain() {
	t.Helper()
	if m, ok := store.As[store.Maintainer](t.Store); ok {
		if err := m.Maintain(t.ctx(), t.lead()); err != nil {
			t.Fatal(err)
		}
	}
}

var endClauses = []clause{
	{"ends/each end is told, however its task ended, and a rescue", func(t *T) {
		h, cursor := t.historian()
		names, worker := map[store.ID]string{}, t.worker()
		for _, name := range []string{"done", "failed", "stopped", "tried"} {
			id := t.addOne()
			names[id] = name
			task := t.takeOne(worker)
			o := to(map[string]store.State{"done": store.Completed, "failed": store.Discarded, "stopped": store.Cancelled,
				"tried": store.Retryable}[name], task)
			if name != "done" {
				o.Error, o.Fingerprint, o.Delay = "bad", "f", time.Hour
			}
			t.mustEnd(o)
		}
		called, died := t.addOne(), store.ID{}
		names[called] = "called off"
		if _, err := t.Edit(t.ctx(), store.Edit{IDs: []store.ID{called},
			Change: store.Change{Op: store.Cancel, Reason: "r"}}); err != nil {
			t.Fatal(err)
		}
		died = t.addOne()
		names[died] = "died"
		task := t.takeOne(worker)
		o := to(store.Retryable, task)
		o.Error, o.Fingerprint, o.Delay = "worker "+worker.String()+" died", "g", time.Hour
		t.mustEnd(o)
		want := "called off:cancelled died:retryable! done:completed failed:discarded stopped:cancelled"
		for _, limit := range []int{1, 2, 100} {
			from := cursor
			if got := t.told(h, &from, names, limit); got != want {
				t.Errorf("told %q in pages of %d, want %q", got, limit, want)
			}
			if got := t.told(h, &from, names, limit); got != "" {
				t.Errorf("told %q again", got)
			}
		}
	}},
	{"ends/ends of a batch are all told, in pages", func(t *T) {
		h, cursor := t.historian()
		worker := t.worker()
		const many = 700
		t.addMany(many)
		tasks := t.takeFrom(t.Store, worker, many)
		outcomes := make([]store.Outcome, len(tasks))
		for i := range tasks {
			outcomes[i] = to(store.Completed, &tasks[i])
			outcomes[i].Ago = time.Duration(i) * time.Millisecond
		}
		for part := range slices.Chunk(outcomes, 70) {
			t.mustEnd(part...)
		}
		seen := map[store.ID]bool{}
		t.eventually("all ends are told", func() bool {
			t.maintain()
			page, err := h.Ended(t.ctx(), cursor, 3)
			if err != nil {
				t.Fatal(err)
			}
			cursor = page.Cursor
			for _, e := range page.Ends {
				seen[e.Task] = true
			}
			return len(seen) == many
		})
	}},
	{"ends/what is committed late is told late", func(t *T) {
		t.transactor()
		h, cursor := t.historian()
		worker := t.worker()
		late, other := t.addOne(), t.addOne()
		names := map[store.ID]string{late: "late", other: "other"}
		tasks := t.takeFrom(t.Store, worker, 2)
		inside, commit, _ := t.begin()
		if _, err := inside.Finish(t.ctx(), []store.Outcome{to(store.Completed, &tasks[0])}); err != nil {
			t.Fatal(err)
		}
		chores := t.maintain
		if t.engine.OneWriter {
			chores = func() {} // they would wait for the transaction
		} else {
			t.mustEnd(to(store.Completed, &tasks[1]))
		}
		before := t.toldAfter(chores, h, &cursor, names, 10)
		commit()
		if t.engine.OneWriter {
			t.mustEnd(to(store.Completed, &tasks[1]))
		}
		after := t.told(h, &cursor, names, 10)
		if strings.Contains(before, "late") || strings.TrimSpace(before+" "+after) != "late:completed other:completed" &&
			before+" "+after != "other:completed late:completed" {
			t.Errorf("told %q before the commit and %q after it", before, after)
		}
	}},
	{"ends/what was told is forgotten, and nobody follows any more", func(t *T) {
		h, begin := t.historian()
		worker, names, cursor := t.worker(), map[store.ID]string{}, begin
		end := func(name string) {
			t.Helper()
			names[t.addOne()] = name
			t.mustEnd(to(store.Completed, t.takeOne(worker)))
		}
		follow := func(on bool) {
			t.Helper()
			if _, err := h.Follow(t.ctx(), on); err != nil {
				t.Fatal(err)
			}
		}
		is := func(from, want string) {
			t.Helper()
			if got := t.told(h, &from, names, 10); got != want {
				t.Errorf("told %q, want %q", got, want)
			}
		}
		end("a")
		if got := t.told(h, &cursor, names, 10); got != "a:completed" {
			t.Error(got)
		}
		if err := h.Forget(t.ctx(), cursor); err != nil {
			t.Fatal(err)
		}
		end("b")
		is(cursor, "b:completed")
		first, err := h.Ended(t.ctx(), begin, 1)
		if err != nil {
			t.Fatal(err)
		}
		if first.Missed >= 0 { // the engine keeps ends for readers
			if first.Missed != 1 {
				t.Errorf("%d ends were missed that are forgotten, want one", first.Missed)
			}
			is(begin, "b:completed")
			follow(false)
			end("c")
			t.maintain()
			follow(true)
			end("d")
			is(cursor, "d:completed")
		}
		for _, on := range []bool{true, false, false, true} {
			follow(on)
		}
		if _, err := h.Ended(t.ctx(), "no cursor", 1); err == nil {
			t.Error("a cursor that is none is taken")
		}
	}},
}
