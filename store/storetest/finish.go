package storetest

import (
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

var finishClauses = []clause{
	{"finish/an attempt that did not fail keeps its mark, which belongs to no group of errors", func(t *T) {
		id := t.worker()
		t.addOne()
		for range 2 {
			o := to(store.Scheduled, t.takeOne(id))
			o.Attempt, o.Fingerprint = 0, "mark"
			t.mustEnd(o)
			past := t.get(o.Task.ID).Detail.Attempts
			if len(past) != 1 || past[0].Fingerprint != "mark" || past[0].Error != "" || past[0].Outcome != store.Scheduled {
				t.Errorf("%+v", past)
			}
			if n := len(t.list(store.Filter{Fingerprint: "mark"})); n != 0 {
				t.Errorf("%d tasks are listed by the mark", n)
			}
			t.admit(10)
		}
		if groups, err := t.Errors(t.ctx(), store.ErrorFilter{}); err != nil || len(groups) != 0 {
			t.Errorf("%+v, %v", groups, err)
		}
	}},
	{"finish/each state is where the task goes", func(t *T) {
		worker := t.worker()
		for _, state := range []store.State{store.Completed, store.Cancelled, store.Discarded, store.Retryable,
			store.Scheduled, store.Available} {
			id := t.addOne()
			task := t.takeOne(worker)
			o := to(state, task)
			o.Reason = "because"
			if !state.Finished() {
				o.Reason, o.Delay = "", time.Hour
			}
			t.mustEnd(o)
			got := t.is(id, state)
			if !got.Lease.IsZero() || !got.Worker.IsZero() || got.Reason != o.Reason ||
				got.FinishedAt.IsZero() == state.Finished() {
				t.Errorf("%v: %+v", state, got)
			}
			if state == store.Available {
				t.mustEnd(to(store.Completed, t.takeOne(worker)))
			}
		}
		if more := t.take(worker, 10); len(more) != 0 {
			t.Errorf("claimed %d that should rest", len(more))
		}
	}},
	{"finish/a retry waits for its delay, and keeps what the task was", func(t *T) {
		worker := t.worker()
		n := newTask(args(`{"keep":"me"}`), priority(7))
		n.Tenant, n.Tags, n.Settings, n.ExpiresIn = "acme", []string{"a", "b"}, []byte(`{"max_attempts":9}`), time.Hour
		t.add(n)
		o := failed(t.takeOne(worker), store.Retryable, "boom")
		o.Delay = time.Hour
		t.mustEnd(o)
		got := t.is(n.ID, store.Retryable)
		if due := got.RunAt.Sub(got.EnqueuedAt); due < time.Hour || due > time.Hour+time.Minute {
			t.Errorf("due after %v", due)
		}
		if string(got.Args) != `{"keep":"me"}` || got.Priority != 7 || got.Tenant != "acme" || len(got.Tags) != 2 ||
			got.Attempt != 1 || got.ExpiresAt.IsZero() {
			t.Errorf("%+v", got)
		}
		if e := t.edit(store.Change{Op: store.Retry}, n.ID)[0]; e.Result != store.Changed {
			t.Fatalf("%+v", e)
		}
		again := t.takeOne(worker)
		if string(again.Args) != `{"keep":"me"}` || again.Attempt != 2 || string(again.Settings) != `{"max_attempts":9}` ||
			!slices.Equal(again.Tags, n.Tags) || again.ExpiresAt.IsZero() {
			t.Errorf("%+v", again)
		}
	}},
	{"finish/a task that need not be kept counts, frees its key, its turn and who needs it, or is kept like any other",
		func(t *T) {
			worker := t.worker()
			parent := t.addOne()
			child := t.addOne(needs(store.CancelOnFailure, parent))
			turn := t.addOne(inTurn("a", ""), func(n *store.NewTask) { n.Tags = []string{"x", "y"} })
			t.grant(turn)
			n := newTask()
			n.Key = "k"
			t.add(n)
			tasks := t.take(worker, 10)
			if len(tasks) != 3 {
				t.Fatalf("claimed %d", len(tasks))
			}
			note := store.Note{Logs: []store.LogLine{{At: time.UnixMilli(1).UTC(), Attempt: 1, Level: "INFO", Text: "x"}},
				Progress: &store.Progress{Percent: 1}}
			var ends []store.Outcome
			for i := range tasks {
				beat := note
				beat.ID, beat.Lease = tasks[i].ID, tasks[i].Lease
				t.beat(worker, time.Hour, beat)
				o := to(store.Completed, &tasks[i])
				o.Forget = true
				ends = append(ends, o)
			}
			t.mustEnd(ends...)
			for i := range tasks {
				for _, left := range t.list(store.Filter{IDs: []store.ID{tasks[i].ID}}) {
					if left.State != store.Completed {
						t.Errorf("%+v", left)
					}
				}
			}
			if lost := t.end(ends...); len(lost) != 3 {
				t.Errorf("a second end: lost %d", len(lost))
			}
			t.is(child, store.Available)
			if got := t.held("a"); got != 0 {
				t.Errorf("held %d", got)
			}
			again := newTask()
			again.Key = "k"
			if e := t.add(again); e[0].Result != store.Added {
				t.Errorf("%+v", e)
			}
			rest := t.take(worker, 10)
			for i := range rest {
				t.mustEnd(to(store.Completed, &rest[i]))
			}
			if s := t.stats(store.StatsFilter{Bucket: time.Hour}); len(s) != 1 || s[0].Completed != 5 || s[0].Ran.Count != 5 {
				t.Errorf("%+v", s)
			}
			if left := t.counts(); len(left) > 0 {
				t.Errorf("unfinished: %v", left)
			}
		}},
	{"finish/a task that is to be forgotten and fails is kept", func(t *T) {
		worker := t.worker()
		for _, state := range []store.State{store.Discarded, store.Cancelled, store.Retryable} {
			id := t.addOne()
			o := failed(t.takeOne(worker), state, "x")
			o.Forget, o.Delay = true, time.Hour
			t.mustEnd(o)
			t.is(id, state)
		}
	}},
	{"finish/the counts to keep are the outcome's", func(t *T) {
		worker := t.worker()
		id := t.addOne()
		o := to(store.Available, t.takeOne(worker))
		o.Attempt, o.Crashes = 0, 2
		t.mustEnd(o)
		if got := t.is(id, store.Available); got.Attempt != 0 || got.Crashes != 2 {
			t.Errorf("%+v", got)
		}
		if task := t.takeOne(worker); task.Attempt != 1 || task.Crashes != 2 {
			t.Errorf("%+v", task)
		}
	}},
	{"finish/an attempt that did not begin does not count in statistics", func(t *T) {
		worker := t.worker()
		for _, n := range []store.NewTask{newTask(), newTask(key("a"))} {
			t.add(n)
			o := to(store.Scheduled, t.takeOne(worker))
			o.Attempt, o.Delay, o.Unbegun, o.Ran = 0, time.Hour, true, time.Hour
			t.mustEnd(o)
			if got := t.is(n.ID, store.Scheduled); got.Attempt != 0 || got.ClaimedAt.IsZero() ||
				got.RunAt.Sub(got.ClaimedAt) < time.Hour-time.Millisecond {
				t.Errorf("%+v", got)
			}
			t.edit(store.Change{Op: store.Reschedule}, n.ID)
			t.mustEnd(to(store.Completed, t.takeOne(worker)))
		}
		var sum store.Stat
		for _, s := range t.stats(store.StatsFilter{Bucket: time.Hour}) {
			sum.Add(&s)
		}
		if sum.Completed != 2 || sum.Ran.Count != 2 || sum.Waited.Count != 2 || sum.Ran.Max >= time.Hour {
			t.Errorf("%d completed, %d attempts, the longest of %v", sum.Completed, sum.Ran.Count, sum.Ran.Max)
		}
	}},
	{"finish/an outcome is accepted once", func(t *T) {
		worker := t.worker()
		id := t.addOne()
		task := t.takeOne(worker)
		t.mustEnd(to(store.Completed, task))
		first := t.is(id, store.Completed)
		t.sameIDs("lost", t.end(failed(task, store.Discarded, "late")), []store.ID{id})
		t.sameIDs("lost", t.end(to(store.Completed, task)), []store.ID{id})
		again := t.is(id, store.Completed)
		if !again.FinishedAt.Equal(first.FinishedAt) || len(again.Detail.Attempts) != 1 || again.Reason != "" {
			t.Errorf("%+v", again)
		}
	}},
	{"finish/an outcome that comes twice does not touch the next attempt", func(t *T) {
		worker := t.worker()
		id := t.addOne()
		first := t.takeOne(worker)
		o := to(store.Available, first)
		o.Attempt = 0 // refunded: the next attempt has the same number
		t.mustEnd(o)
		second := t.takeOne(worker)
		if second.Attempt != 1 || second.Lease == first.Lease {
			t.Fatalf("%+v", second)
		}
		t.sameIDs("lost", t.end(o), []store.ID{id})
		t.sameIDs("lost", t.end(to(store.Completed, first)), []store.ID{id})
		t.is(id, store.Running)
		t.mustEnd(to(store.Completed, second))
	}},
	{"finish/a foreign or invented token is refused", func(t *T) {
		worker := t.worker()
		t.addMany(2)
		one, two := t.takeOne(worker), t.takeOne(worker)
		forged, swapped, unknown := *one, *one, *one
		forged.Lease = store.NewToken()
		swapped.Lease = two.Lease
		unknown.ID = NewID()
		lost := t.end(to(store.Completed, &forged), to(store.Discarded, &swapped), to(store.Completed, &unknown))
		if len(lost) != 3 {
			t.Errorf("lost %d of 3", len(lost))
		}
		t.is(one.ID, store.Running)
		t.is(two.ID, store.Running)
		t.gone(unknown.ID)
		t.mustEnd(to(store.Completed, one), to(store.Completed, two))
	}},
	{"finish/an end that is refused leaves no output, progress or log behind", func(t *T) {
		worker := t.worker()
		id := t.addOne()
		stale := t.takeOne(worker)
		t.mustEnd(to(store.Available, stale))
		forged := *t.takeOne(worker)
		running := forged
		forged.Lease = store.NewToken()
		note := store.Note{Output: []byte(`"refused"`), Progress: &store.Progress{Percent: 7},
			Logs: []store.LogLine{{Text: "refused"}}}
		refused := func(tasks ...*store.Task) {
			t.Helper()
			for _, task := range tasks {
				for _, o := range []store.Outcome{to(store.Completed, task), failed(task, store.Retryable, "late")} {
					o.Note = &note
					t.sameIDs("lost", t.end(o), []store.ID{id})
				}
			}
			if d := t.get(id).Detail; d.Output != nil || d.Progress != nil || len(d.Logs) > 0 {
				t.Fatalf("%+v", d)
			}
		}
		refused(stale, &forged)
		t.is(id, store.Running)
		t.mustEnd(to(store.Completed, &running))
		refused(stale, &forged, &running)
		t.is(id, store.Completed)
	}},
	{"finish/one that is lost does not spoil the others of its batch", func(t *T) {
		worker := t.worker()
		t.addMany(5)
		tasks := t.take(worker, 5)
		t.mustEnd(to(store.Completed, &tasks[2]))
		var batch []store.Outcome
		for i := range tasks {
			batch = append(batch, to(store.Completed, &tasks[i]))
		}
		t.sameIDs("lost", t.end(batch...), []store.ID{tasks[2].ID})
		for i := range tasks {
			t.is(tasks[i].ID, store.Completed)
		}
	}},
	{"finish/the same task twice in one batch is accepted once", func(t *T) {
		worker := t.worker()
		t.addOne()
		task := t.takeOne(worker)
		if lost := t.end(to(store.Completed, task), to(store.Completed, task)); len(lost) != 1 {
			t.Errorf("lost %d of 1", len(lost))
		}
		if got := t.is(task.ID, store.Completed); len(got.Detail.Attempts) != 1 {
			t.Errorf("%+v", got.Detail.Attempts)
		}
	}},
	{"finish/the tasks of one lease may end one by one, in any order, in any state", func(t *T) {
		worker := t.worker()
		t.addMany(7)
		tasks := t.take(worker, 7)
		t.mustEnd(to(store.Completed, &tasks[3]))
		t.mustEnd(to(store.Available, &tasks[0]), failed(&tasks[6], store.Discarded, "x"))
		for _, i := range []int{1, 2, 4, 5} {
			t.is(tasks[i].ID, store.Running)
		}
		back := t.takeOne(worker)
		if back.ID != tasks[0].ID {
			t.Errorf("%+v", back)
		}
		t.mustEnd(to(store.Cancelled, &tasks[5]), to(store.Completed, &tasks[1]), to(store.Completed, back))
		t.mustEnd(failed(&tasks[2], store.Retryable, "y"), to(store.Completed, &tasks[4]))
		if all, _ := t.Workers(t.ctx()); all[0].Running != 0 {
			t.Errorf("still holds %d", all[0].Running)
		}
	}},
	{"finish/every failed attempt and the latest one are kept", func(t *T) {
		worker := t.worker()
		id := t.addOne()
		for i, text := range []string{"first", "second"} {
			o := failed(t.takeOne(worker), store.Retryable, text)
			o.Trace = "trace of " + text
			t.mustEnd(o)
			if got := t.get(id).Detail.Attempts; len(got) != i+1 {
				t.Fatalf("%d attempts", len(got))
			}
			t.admit(10)
		}
		o := to(store.Completed, t.takeOne(worker))
		o.Ran = 20 * time.Millisecond
		t.mustEnd(o)
		past := t.is(id, store.Completed).Detail.Attempts
		if len(past) != 3 {
			t.Fatalf("%d attempts", len(past))
		}
		for i, want := range []store.Attempt{
			{Number: 1, Outcome: store.Retryable, Error: "first", Trace: "trace of first", Fingerprint: "fp-first"},
			{Number: 2, Outcome: store.Retryable, Error: "second", Trace: "trace of second", Fingerprint: "fp-second"},
			{Number: 3, Outcome: store.Completed},
		} {
			got := past[i]
			if got.Worker != worker || got.StartedAt.IsZero() || got.EndedAt.Before(got.StartedAt.Add(-2*time.Millisecond)) {
				t.Errorf("attempt %d: %+v", i, got)
			}
			got.Worker, got.StartedAt, got.EndedAt = store.ID{}, time.Time{}, time.Time{}
			if got != want {
				t.Errorf("attempt %d: %+v, want %+v", i, got, want)
			}
		}
	}},
	{"finish/an attempt ended when it ended, not when it was written", func(t *T) {
		worker := t.worker()
		id := t.addOne()
		begun := time.Now()
		task := t.takeOne(worker)
		time.Sleep(300 * time.Millisecond)
		o := to(store.Completed, task)
		o.Ago = 200 * time.Millisecond
		t.mustEnd(o)
		longest := time.Since(begun) - o.Ago + 2*time.Millisecond
		if ran := t.get(id); ran.FinishedAt.Before(ran.ClaimedAt) || ran.FinishedAt.Sub(ran.ClaimedAt) > longest {
			t.Errorf("claimed at %v, finished at %v: more than %v later", ran.ClaimedAt, ran.FinishedAt, longest)
		}
	}},
	{"finish/large errors and outputs are kept", func(t *T) {
		worker := t.worker()
		id := t.addOne()
		big := make([]byte, 16<<10)
		for i := range big {
			big[i] = 'e'
		}
		o := failed(t.takeOne(worker), store.Discarded, string(big))
		o.Fingerprint = "fp"
		output := `"` + string(slices.Repeat([]byte("o"), 250<<10)) + `"`
		o.Note = &store.Note{Output: []byte(output)}
		t.mustEnd(o)
		d := t.get(id).Detail
		if d.Attempts[0].Error != string(big) || string(d.Output) != output {
			t.Errorf("error %d bytes, output %d bytes", len(d.Attempts[0].Error), len(d.Output))
		}
	}},
	{"finish/nothing to finish is no error", func(t *T) {
		if lost := t.end(); len(lost) != 0 {
			t.Errorf("%v", lost)
		}
	}},
}
