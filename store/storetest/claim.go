package storetest

import (
	"errors"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

var claimClauses = []clause{
	{"claim/a claimed task is running, counted and leased", func(t *T) {
		worker, token := t.worker(), store.NewToken()
		n := newTask(args(`{"n":1}`), priority(3), key("its key"))
		n.Tenant, n.Tags, n.Settings, n.ExpiresIn = "acme", []string{"a"}, []byte(`{"timeout":1}`), time.Hour
		t.add(n)
		tasks, err := t.Claim(t.ctx(), store.ClaimRequest{Worker: worker, Queues: []string{"q"}, Limit: 5, Token: token})
		if err != nil || len(tasks) != 1 {
			t.Fatalf("%d tasks, %v", len(tasks), err)
		}
		c := tasks[0]
		if c.ID != n.ID || c.State != store.Running || c.Attempt != 1 || c.Lease != token || c.Worker != worker {
			t.Errorf("claimed %+v", c)
		}
		if c.Kind != "k" || c.Queue != "q" || c.Tenant != "acme" || c.Key != "its key" || c.Priority != 3 ||
			string(c.Args) != `{"n":1}` ||
			!slices.Equal(c.Tags, n.Tags) || string(c.Settings) != string(n.Settings) {
			t.Errorf("claimed %+v", c)
		}
		if c.ClaimedAt.Before(c.EnqueuedAt.Add(-2*time.Millisecond)) || c.ExpiresAt.IsZero() || c.RunAt.IsZero() {
			t.Errorf("instants of %+v", c)
		}
		got := t.is(n.ID, store.Running)
		if got.Attempt != 1 || got.Lease != token || got.Worker != worker || got.ClaimedAt.IsZero() {
			t.Errorf("stored %+v", got)
		}
	}},
	{"claim/lower priority values come first, then those that were available first", func(t *T) {
		var want []store.ID
		byPriority := map[int16][]store.ID{}
		for _, p := range []int16{5, -3, 0, 5, 0, -32768, 32767, -3} {
			byPriority[p] = append(byPriority[p], t.addOne(priority(p)))
		}
		for _, p := range []int16{-32768, -3, 0, 5, 32767} {
			want = append(want, byPriority[p]...)
		}
		worker := t.worker()
		got := append(idsOfTasks(t.take(worker, 3)), idsOfTasks(t.take(worker, 100))...)
		t.inOrder("claimed", got, want)
	}},
	{"claim/urgent tasks that come later are claimed before others that waited", func(t *T) {
		if t.engine.Spread {
			t.Skip("order is approximate")
		}
		worker := t.worker()
		t.addMany(10, priority(1))
		t.take(worker, 3)
		urgent := t.addMany(2, priority(0))
		t.sameIDs("claimed", idsOfTasks(t.take(worker, 2)), urgent)
	}},
	{"claim/no more than the limit, and nothing from other queues", func(t *T) {
		t.addMany(5)
		t.addMany(5, queue("other"))
		worker := t.worker()
		if n := len(t.take(worker, 3)); n != 3 {
			t.Errorf("claimed %d of 3", n)
		}
		for _, task := range t.take(worker, 100) {
			if task.Queue != "q" {
				t.Errorf("claimed from %s", task.Queue)
			}
		}
		if n := len(t.take(worker, 100, "nowhere")); n != 0 {
			t.Errorf("claimed %d from nowhere", n)
		}
	}},
	{"claim/several queues in one request, in the order given", func(t *T) {
		a, b := t.addMany(2, queue("a"), priority(9)), t.addMany(2, queue("b"), priority(-9))
		t.sameIDs("claimed", idsOfTasks(t.take(t.worker(), 10, "a", "b", "c")), slices.Concat(a, b))
	}},
	{"claim/nothing is claimed twice while its lease is open", func(t *T) {
		t.addMany(10)
		one, two := t.worker(), t.worker()
		first := t.take(one, 10)
		if again := append(t.take(one, 10), t.take(two, 10)...); len(first) != 10 || len(again) != 0 {
			t.Errorf("claimed %d, then %d", len(first), len(again))
		}
	}},
	{"claim/a repeated request gets what the lost answer held", func(t *T) {
		worker := t.worker()
		want := t.addMany(4)
		r := store.ClaimRequest{Worker: worker, Queues: []string{"q"}, Limit: 4, Token: store.NewToken()}
		if _, err := t.Claim(t.ctx(), r); err != nil { // the answer that was lost
			t.Fatal(err)
		}
		t.addMany(4)
		r.Again = true
		tasks, err := t.Claim(t.ctx(), r)
		if err != nil {
			t.Fatal(err)
		}
		got := idsOfTasks(tasks)
		sortIDs(got)
		t.sameIDs("claimed again", got, want)
		for i := range tasks {
			if tasks[i].Attempt != 1 || tasks[i].Lease != r.Token || tasks[i].State != store.Running {
				t.Errorf("%+v", tasks[i])
			}
		}
		for i := range tasks {
			t.mustEnd(to(store.Completed, &tasks[i]))
		}
	}},
	{"claim/a repeated request does not get what has ended meanwhile", func(t *T) {
		worker := t.worker()
		t.addMany(4)
		r := store.ClaimRequest{Worker: worker, Queues: []string{"q"}, Limit: 4, Token: store.NewToken()}
		first, err := t.Claim(t.ctx(), r)
		if err != nil || len(first) != 4 {
			t.Fatalf("%d tasks, %v", len(first), err)
		}
		t.mustEnd(to(store.Completed, &first[1]), to(store.Available, &first[2]))
		r.Again = true
		again, err := t.Claim(t.ctx(), r)
		if err != nil {
			t.Fatal(err)
		}
		got, want := idsOfTasks(again), []store.ID{first[0].ID, first[3].ID}
		sortIDs(got)
		sortIDs(want)
		t.sameIDs("claimed again", got, want)
	}},
	{"claim/a repeated request claims nothing that the first did not", func(t *T) {
		t.addMany(2)
		r := store.ClaimRequest{Worker: t.worker(), Queues: []string{"q"}, Limit: 4, Token: store.NewToken(), Again: true}
		if tasks, err := t.Claim(t.ctx(), r); err != nil || len(tasks) != 0 {
			t.Errorf("claimed %d tasks under a token that may still claim some: error %v", len(tasks), err)
		}
	}},
	{"claim/a worker that never beat gets nothing", func(t *T) {
		t.addOne()
		_, err := t.Claim(t.ctx(), store.ClaimRequest{Worker: NewID(), Queues: []string{"q"}, Limit: 1,
			Token: store.NewToken()})
		if !errors.Is(err, store.ErrWorkerDead) {
			t.Errorf("got %v", err)
		}
	}},
	{"claim/attempts count up from one claim to the next", func(t *T) {
		worker := t.worker()
		id := t.addOne()
		for n := 1; n <= 4; n++ {
			task := t.takeOne(worker)
			if task.Attempt != n || task.ID != id {
				t.Fatalf("attempt %d: %+v", n, task)
			}
			t.mustEnd(failed(task, store.Retryable, "x"))
			t.admit(10)
		}
	}},
	{"claim/a task that expired is handed out with both instants, for the caller to judge", func(t *T) {
		n := newTask()
		n.ExpiresIn = time.Millisecond
		t.add(n)
		time.Sleep(20 * time.Millisecond)
		task := t.takeOne(t.worker())
		if !task.ClaimedAt.After(task.ExpiresAt) {
			t.Errorf("claimed at %v, expired at %v", task.ClaimedAt, task.ExpiresAt)
		}
	}},
	{"claim/an empty poll changes nothing", func(t *T) {
		worker := t.worker()
		for range 20 {
			if got := t.take(worker, 10, "q", "empty"); len(got) != 0 {
				t.Errorf("claimed %d", len(got))
			}
		}
		id := t.addOne()
		t.sameIDs("claimed", idsOfTasks(t.take(worker, 1)), []store.ID{id})
	}},
}

func sortIDs(ids []store.ID) {
	slices.SortFunc(ids, func(a, b store.ID) int { return slices.Compare(a[:], b[:]) })
}

var extendClauses = []clause{
	{"extend/a living worker is listed with its labels, and signs off", func(t *T) {
		id := NewID()
		w := store.Worker{ID: id, Host: "hö'st", PID: 42, Queues: []string{"a", "b"}, Concurrency: 7, Version: "v1",
			Kinds: []string{"k"}, Hung: 3}
		if _, err := t.Extend(t.ctx(), store.Beat{Worker: w, TTL: time.Minute}); err != nil {
			t.Fatal(err)
		}
		all, err := t.Workers(t.ctx())
		if err != nil || len(all) != 1 {
			t.Fatalf("%+v, %v", all, err)
		}
		got := all[0]
		if got.ID != id || got.Host != w.Host || got.PID != 42 || !slices.Equal(got.Queues, w.Queues) ||
			got.Concurrency != 7 || got.Version != "v1" || got.Running != 0 ||
			!slices.Equal(got.Kinds, w.Kinds) || got.Hung != 3 {
			t.Errorf("%+v", got)
		}
		t.near("expiry", got.ExpiresAt, got.BeatAt.Add(time.Minute))
		if got.StartedAt.IsZero() || got.StartedAt.After(got.BeatAt) {
			t.Errorf("started at %v, beat at %v", got.StartedAt, got.BeatAt)
		}
		w.ID, w.Hung = id, 0
		if _, err := t.Extend(t.ctx(), store.Beat{Worker: w, TTL: time.Minute}); err != nil {
			t.Fatal(err)
		}
		t.addMany(3)
		t.take(id, 2)
		if all, _ := t.Workers(t.ctx()); all[0].Running != 2 || all[0].Hung != 0 {
			t.Errorf("%+v, want 2 running, none hung", all[0])
		}
		other := t.worker()
		if all, _ := t.Workers(t.ctx()); len(all) != 2 || all[0].ID != id || all[1].ID != other {
			t.Errorf("%+v", all)
		}
		t.beat(other, 0)
		if all, _ := t.Workers(t.ctx()); len(all) != 1 {
			t.Errorf("%d after signing off", len(all))
		}
		if _, err := t.Claim(t.ctx(), store.ClaimRequest{Worker: other, Queues: []string{"q"}, Limit: 1,
			Token: store.NewToken()}); !errors.Is(err, store.ErrWorkerDead) {
			t.Errorf("claim after signing off: %v", err)
		}
	}},
	{"extend/signing off twice or unknown is no error", func(t *T) {
		id := t.worker()
		t.beat(id, 0)
		t.beat(id, 0)
		t.beat(NewID(), 0)
	}},
	{"extend/signing off again stores no note again", func(t *T) {
		id := t.worker()
		t.addOne()
		task := t.takeOne(id)
		note := store.Note{ID: task.ID, Lease: task.Lease,
			Logs: []store.LogLine{{Attempt: 1, Level: "INFO", Text: "last words"}}}
		t.beat(id, 0, note)
		t.beat(id, 0, note)
		if logs := t.get(task.ID).Detail.Logs; len(logs) != 1 {
			t.Errorf("logged %+v", logs)
		}
	}},
	{"extend/what a worker that signs off still holds is rescued", func(t *T) {
		id := t.worker()
		t.addOne()
		task := t.takeOne(id)
		t.beat(id, 0)
		var got []store.Task
		t.eventually("rescued", func() bool { got = t.rescue(10); return len(got) == 1 })
		if got[0].ID != task.ID {
			t.Errorf("%+v", got)
		}
	}},
	{"extend/beats keep leases beyond their first TTL", func(t *T) {
		id := NewID()
		t.beat(id, 400*time.Millisecond)
		t.addOne()
		task := t.takeOne(id)
		for range 8 {
			time.Sleep(100 * time.Millisecond)
			t.beat(id, 5*time.Second)
			if got := t.rescue(10); len(got) != 0 {
				t.Fatalf("rescued from a living worker: %+v", got)
			}
		}
		t.mustEnd(to(store.Completed, task))
	}},
	{"extend/notes on a running task are stored, log lines appended", func(t *T) {
		id := t.worker()
		t.addOne()
		task := t.takeOne(id)
		at := time.Now().UTC().Truncate(time.Millisecond)
		line := func(text string) []store.LogLine {
			return []store.LogLine{{At: at, Attempt: 1, Level: "INFO", Text: text}}
		}
		t.beat(id, time.Minute, store.Note{ID: task.ID, Lease: task.Lease,
			Progress: &store.Progress{Percent: 10, Message: "ten"}, Logs: line("a")})
		t.beat(id, time.Minute, store.Note{ID: task.ID, Lease: task.Lease, Logs: line("b'%\"")})
		d := t.get(task.ID).Detail
		if d.Progress == nil || *d.Progress != (store.Progress{Percent: 10, Message: "ten"}) {
			t.Errorf("progress %+v", d.Progress)
		}
		if len(d.Logs) != 2 || d.Logs[0].Text != "a" || d.Logs[1].Text != "b'%\"" || !d.Logs[0].At.Equal(at) ||
			d.Logs[0].Level != "INFO" || d.Logs[0].Attempt != 1 {
			t.Errorf("logs %+v", d.Logs)
		}
		o := to(store.Completed, task)
		o.Note = &store.Note{Progress: &store.Progress{Percent: 100}, Output: []byte(`{"x":[1]}`), Logs: line("c")}
		t.mustEnd(o)
		d = t.get(task.ID).Detail
		if d.Progress.Percent != 100 || string(d.Output) != `{"x":[1]}` || len(d.Logs) != 3 || d.Logs[2].Text != "c" {
			t.Errorf("at the end %+v %s %+v", d.Progress, d.Output, d.Logs)
		}
	}},
	{"extend/a log line that is sent again is stored once", func(t *T) {
		id := t.worker()
		t.addOne()
		task := t.takeOne(id)
		at := time.Now().UTC().Truncate(time.Millisecond)
		lines := []store.LogLine{{At: at, Attempt: 1, Level: "INFO", Text: "a"},
			{At: at.Add(time.Microsecond), Attempt: 1, Level: "INFO", Text: "a"},
			{At: at.Add(2 * time.Microsecond), Attempt: 1, Level: "INFO", Text: "b"}}
		note := store.Note{ID: task.ID, Lease: task.Lease, Logs: lines[:2]}
		t.beat(id, time.Minute, note)
		t.beat(id, time.Minute, note) // the first answer was lost
		o := to(store.Completed, task)
		o.Note = &store.Note{Logs: lines} // it was made before the beat's answer came
		t.mustEnd(o)
		logs := t.get(task.ID).Detail.Logs
		if !slices.EqualFunc(logs, lines, func(a, b store.LogLine) bool { return a.At.Equal(b.At) && a.Text == b.Text }) {
			t.Errorf("logged %+v, want %+v", logs, lines)
		}
	}},
	{"extend/notes under another lease are dropped", func(t *T) {
		id := t.worker()
		t.addOne()
		old := t.takeOne(id)
		t.mustEnd(failed(old, store.Available, "x"))
		task := t.takeOne(id)
		t.beat(id, time.Minute,
			store.Note{ID: task.ID, Lease: old.Lease, Progress: &store.Progress{Percent: 50}},
			store.Note{ID: NewID(), Lease: task.Lease, Progress: &store.Progress{Percent: 50}},
			store.Note{ID: task.ID, Lease: store.NewToken(), Progress: &store.Progress{Percent: 50}})
		if d := t.get(task.ID).Detail; d.Progress != nil {
			t.Errorf("%+v", d.Progress)
		}
	}},
	{"extend/a cancel of a running task is told at every beat until it is finished", func(t *T) {
		id, other := t.worker(), t.worker()
		t.addMany(2)
		tasks := t.take(id, 2)
		if e := t.edit(store.Change{Op: store.Cancel, Reason: "no more"}, tasks[0].ID)[0]; e.Result != store.Requested ||
			e.State != store.Running {
			t.Errorf("%+v", e)
		}
		if !t.get(tasks[0].ID).Detail.CancelRequested || t.get(tasks[1].ID).Detail.CancelRequested {
			t.Error("the request is not shown")
		}
		for range 2 {
			if stops := t.beat(id, time.Minute); len(stops) != 1 || stops[0].ID != tasks[0].ID ||
				stops[0].Lease != tasks[0].Lease {
				t.Errorf("%+v", stops)
			}
		}
		if stops := t.beat(other, time.Minute); len(stops) != 0 {
			t.Errorf("told to another worker: %+v", stops)
		}
		t.mustEnd(to(store.Cancelled, &tasks[0]))
		if stops := t.beat(id, time.Minute); len(stops) != 0 {
			t.Errorf("after the end: %+v", stops)
		}
		t.is(tasks[0].ID, store.Cancelled)
	}},
	{"extend/a task that its worker cancels as it was asked to has the reason of whoever asked", func(t *T) {
		id := t.worker()
		for asked, want := range map[string]string{"no more": "no more", "": "cancelled while it ran"} {
			t.addOne()
			task := t.takeOne(id)
			t.edit(store.Change{Op: store.Cancel, Reason: asked}, task.ID)
			o := to(store.Cancelled, task)
			o.Reason = "cancelled while it ran"
			t.mustEnd(o)
			if got := t.is(task.ID, store.Cancelled); got.Reason != want {
				t.Errorf("asked with %q: the reason is %q", asked, got.Reason)
			}
		}
	}},
	{"extend/a cancel that was acknowledged is not forgotten, whatever the attempt came to", func(t *T) {
		id := t.worker()
		for _, state := range []store.State{store.Retryable, store.Scheduled, store.Available, store.Pending} {
			t.addOne()
			task := t.takeOne(id)
			t.edit(store.Change{Op: store.Cancel, Reason: "no more"}, task.ID)
			o := failed(task, state, "x")
			o.Delay = time.Hour
			t.mustEnd(o)
			if got := t.is(task.ID, store.Cancelled); got.Reason != "no more" || got.FinishedAt.IsZero() ||
				got.Detail.CancelRequested {
				t.Errorf("%v: %+v", state, got)
			}
			t.edit(store.Change{Op: store.Retry}, task.ID)
			t.mustEnd(to(store.Completed, t.takeOne(id)))
		}
	}},
	{"extend/a task that was told to stop may still complete", func(t *T) {
		id := t.worker()
		t.addOne()
		task := t.takeOne(id)
		t.edit(store.Change{Op: store.Cancel}, task.ID)
		t.mustEnd(to(store.Completed, task))
		if got := t.is(task.ID, store.Completed); got.Detail.CancelRequested {
			t.Error("still requested")
		}
	}},
	{"extend/a lease that its worker does not name in two beats is given back, and its tasks run again", func(t *T) {
		id := t.worker()
		ids := t.addMany(3)
		known, asked := t.take(id, 1), store.NewToken()
		t.tell(id, 1, 0, known[0].Lease, asked)
		t.lead()
		// The claim arrives long after the worker has given up on it, and its answer is lost.
		if late, err := t.Claim(t.ctx(), store.ClaimRequest{Worker: id, Queues: []string{"q"}, Limit: 5,
			Token: asked}); err != nil || len(late) != 2 {
			t.Fatal(len(late), err)
		}
		t.tell(id, 2, 1, known[0].Lease)
		t.tell(id, 3, 2, known[0].Lease)
		var got []store.Task
		t.eventually("found", func() bool { got = t.rescue(10); return len(got) > 0 })
		if len(got) != 2 {
			t.Fatalf("%d of 2 found", len(got))
		}
		for i := range got {
			if o := &got[i]; !o.Stray || o.Lease != asked || o.Worker != id || o.Attempt != 1 ||
				!slices.Contains(ids[1:], o.ID) {
				t.Errorf("%+v", o)
			}
			o := to(store.Available, &got[i])
			o.Attempt = 0
			t.mustEnd(o)
		}
		if again := t.take(t.worker(), 10); len(again) != 2 || again[0].Attempt != 1 || again[0].Crashes != 0 {
			t.Errorf("claimed again: %+v", again)
		}
		t.mustEnd(to(store.Completed, &known[0]))
	}},
	{"extend/a lease that is named, or younger than the last beat that was answered, is its worker's", func(t *T) {
		id := t.worker()
		t.addMany(4)
		t.lead()
		named := t.take(id, 1)
		t.tell(id, 1, 0)
		t.tell(id, 2, 1, named[0].Lease)
		young := t.take(id, 1)
		t.tell(id, 3, 1, named[0].Lease) // the answer to the second was lost: it may have come after the claim
		t.tell(id, 4, 1, named[0].Lease)
		if got := t.rescue(10); len(got) != 0 {
			t.Errorf("taken from their worker: %+v", got)
		}
		uncounted := t.worker()
		silent := t.take(uncounted, 1)
		t.beat(uncounted, time.Hour)
		t.beat(uncounted, time.Hour)
		if got := t.rescue(10); len(got) != 0 {
			t.Errorf("taken from a worker that does not say what it holds: %+v", got)
		}
		t.mustEnd(to(store.Completed, &named[0]), to(store.Completed, &young[0]), to(store.Completed, &silent[0]))
	}},
	{"extend/a beat that comes after a later one changes nothing", func(t *T) {
		id := t.worker()
		t.addOne()
		task := t.takeOne(id)
		note := func(percent float64) store.Note {
			return store.Note{ID: task.ID, Lease: task.Lease, Progress: &store.Progress{Percent: percent}}
		}
		beat := store.Beat{Worker: store.Worker{ID: id}, TTL: time.Hour, Seq: 2, Holds: []store.Token{task.Lease},
			Notes: []store.Note{note(20)}}
		if _, err := t.Extend(t.ctx(), beat); err != nil {
			t.Fatal(err)
		}
		before, err := t.Workers(t.ctx())
		if err != nil || len(before) != 1 {
			t.Fatal(before, err)
		}
		for _, seq := range []int64{1, 2} {
			late := beat
			late.Seq, late.Notes, late.Holds, late.TTL = seq, []store.Note{note(10)}, nil, time.Minute
			if _, err := t.Extend(t.ctx(), late); !errors.Is(err, store.ErrLate) {
				t.Errorf("beat %d after beat 2: %v", seq, err)
			}
		}
		if after, err := t.Workers(t.ctx()); err != nil || len(after) != 1 || !after[0].ExpiresAt.Equal(before[0].ExpiresAt) {
			t.Errorf("%+v, %v: want %+v", after, err, before)
		}
		if p := t.get(task.ID).Detail.Progress; p == nil || p.Percent != 20 {
			t.Errorf("progress %+v", p)
		}
		t.mustEnd(to(store.Completed, task))
	}},
}
