package storetest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

func (t *T) stats(f store.StatsFilter) []store.Stat {
	t.Helper()
	if f.From.IsZero() {
		f.From, f.Until = time.Now().Add(-48*time.Hour), time.Now().Add(48*time.Hour)
	}
	stats, err := t.Stats(t.ctx(), f)
	if err != nil {
		t.Fatalf("stats: %v", err)
	}
	return stats
}

func (t *T) groups(f store.ErrorFilter) []store.ErrorGroup {
	t.Helper()
	groups, err := t.Errors(t.ctx(), f)
	if err != nil {
		t.Fatalf("errors: %v", err)
	}
	return groups
}

func (t *T) counts() map[string]int64 {
	t.Helper()
	all, err := t.Count(t.ctx())
	if err != nil {
		t.Fatalf("count: %v", err)
	}
	counts := map[string]int64{}
	for _, c := range all {
		if c.Tasks != 0 {
			counts[c.Queue+" "+c.State.String()] += c.Tasks
		}
	}
	return counts
}

var readClauses = []clause{
	{"list/newest first, in pages that neither repeat nor skip", func(t *T) {
		ids := t.addMany(25)
		slices.Reverse(ids)
		t.sameIDs("all", idsOfTasks(t.list(store.Filter{})), ids)
		var paged []store.ID
		var last store.ID
		for {
			page := idsOfTasks(t.list(store.Filter{Limit: 10, Before: last}))
			if len(page) == 0 {
				break
			}
			paged = append(paged, page...)
			last = page[len(page)-1]
			t.addOne() // newer tasks do not shift the pages
		}
		t.sameIDs("paged", paged, ids)
	}},
	{"list/a page has a hundred tasks unless asked, and a thousand at most", func(t *T) {
		t.addMany(store.MaxPage + 1)
		for _, c := range []struct{ limit, want int }{{0, 100}, {99, 99}, {store.MaxPage + 1, store.MaxPage}} {
			if got := len(t.list(store.Filter{Limit: c.limit})); got != c.want {
				t.Errorf("limit %d: %d", c.limit, got)
			}
		}
	}},
	{"list/by every field, all of which must match", func(t *T) {
		worker := t.worker()
		n := newTask(queue("a"), kind("k1"), key("key-1"))
		n.Tenant, n.Tags = "acme", []string{"x", "y"}
		m := newTask(queue("b"), kind("k2"), delay(time.Hour))
		m.Tenant, m.Tags = "other", []string{"y"}
		o := newTask(queue("a"), kind("k2"))
		t.add(n)
		t.take(worker, 1, "a")
		t.add(m, o)
		for _, c := range []struct {
			name string
			f    store.Filter
			want []store.ID
		}{
			{"nothing", store.Filter{}, []store.ID{o.ID, m.ID, n.ID}},
			{"ids", store.Filter{IDs: []store.ID{n.ID, o.ID, NewID()}}, []store.ID{o.ID, n.ID}},
			{"queue", store.Filter{Queues: []string{"a"}}, []store.ID{o.ID, n.ID}},
			{"queues", store.Filter{Queues: []string{"a", "b"}}, []store.ID{o.ID, m.ID, n.ID}},
			{"kind", store.Filter{Kinds: []string{"k2"}}, []store.ID{o.ID, m.ID}},
			{"tenant", store.Filter{Tenants: []string{"acme"}}, []store.ID{n.ID}},
			{"no tenant", store.Filter{Tenants: []string{""}}, []store.ID{o.ID}},
			{"tag", store.Filter{Tags: []string{"y"}}, []store.ID{m.ID, n.ID}},
			{"tags", store.Filter{Tags: []string{"y", "x"}}, []store.ID{n.ID}},
			{"key", store.Filter{Key: "key-1"}, []store.ID{n.ID}},
			{"running", store.Filter{States: []store.State{store.Running}}, []store.ID{n.ID}},
			{"waiting", store.Filter{States: []store.State{store.Scheduled, store.Available}}, []store.ID{o.ID, m.ID}},
			{"two fields", store.Filter{Queues: []string{"a"}, Kinds: []string{"k2"}}, []store.ID{o.ID}},
			{"no match", store.Filter{Queues: []string{"b"}, Kinds: []string{"k1"}}, nil},
			{"before", store.Filter{Before: o.ID}, []store.ID{m.ID, n.ID}},
			{"limit", store.Filter{Limit: 2}, []store.ID{o.ID, m.ID}},
		} {
			if got := idsOfTasks(t.list(c.f)); !slices.Equal(got, c.want) {
				t.Errorf("%s: got %v, want %v", c.name, got, c.want)
			}
		}
	}},
	// Pipelines rely on this: a run begins after another run with its key.
	{"list/who gets a key sees by it what its last holder has left behind, in another queue", func(t *T) {
		worker := t.worker()
		for i := range 20 {
			tenant := func(n *store.NewTask) { n.Tenant = []string{"", "acme"}[i%2] }
			of := []func(*store.NewTask){key(fmt.Sprint("k", i)), conflict(store.Rerun), tenant}
			t.add(newTask(append(of, source(1))...))
			first := t.takeOne(worker)
			after := t.addOne(append(of, source(3))...)
			next := newTask(append(of, source(2), queue("next"))...)
			o := to(store.Completed, first)
			o.Then = []store.NewTask{next}
			ended := make(chan error, 1)
			go func() {
				_, err := finish(t.ctx(), t.Store, []store.Outcome{o})
				ended <- err
			}()
			var got []store.Task
			t.eventually("it runs", func() bool { got = t.take(worker, 1); return len(got) == 1 })
			found := t.list(store.Filter{Key: got[0].Key, Tenants: []string{got[0].Tenant},
				States: []store.State{store.Scheduled, store.Pending, store.Available, store.Running},
				Queues: []string{"next", "other"}, NoArgs: true, Limit: 4})
			if got[0].ID != after || len(found) != 1 || found[0].ID != next.ID {
				t.Errorf("%d: %v runs, beside it %v is there", i, got[0].ID, idsOfTasks(found))
			}
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			t.mustEnd(to(store.Completed, &got[0]))
		}
	}},
	{"list/by the time of enqueueing, until not included", func(t *T) {
		id := t.addOne()
		at := t.get(id).EnqueuedAt
		for _, c := range []struct {
			from, until time.Time
			want        int
		}{
			{at, time.Time{}, 1}, {at.Add(time.Second), time.Time{}, 0}, {time.Time{}, at, 0},
			{time.Time{}, at.Add(time.Second), 1}, {at.Add(-time.Second), at.Add(time.Second), 1},
		} {
			if got := t.list(store.Filter{From: c.from, Until: c.until}); len(got) != c.want {
				t.Errorf("from %v until %v: %d", c.from, c.until, len(got))
			}
		}
	}},
	{"list/by the fingerprint of the latest failure", func(t *T) {
		worker := t.worker()
		t.addMany(3)
		tasks := t.take(worker, 3)
		t.mustEnd(failed(&tasks[0], store.Retryable, "a"), failed(&tasks[1], store.Discarded, "a"),
			failed(&tasks[2], store.Retryable, "b"))
		got := idsOfTasks(t.list(store.Filter{Fingerprint: "fp-a"}))
		t.sameIDs("found", got, []store.ID{tasks[1].ID, tasks[0].ID})
		got = idsOfTasks(t.list(store.Filter{Fingerprint: "fp-a", States: []store.State{store.Retryable}}))
		t.sameIDs("found", got, []store.ID{tasks[0].ID})
	}},
	{"list/every state is found by its name and nothing else is", func(t *T) {
		worker := t.worker()
		want := map[store.State]store.ID{}
		for _, state := range []store.State{store.Completed, store.Cancelled, store.Discarded, store.Retryable} {
			t.addOne()
			task := t.takeOne(worker)
			o := failed(task, state, "x")
			o.Delay = time.Hour
			t.mustEnd(o)
			want[state] = task.ID
		}
		t.addOne(key("k"), conflict(store.Rerun), source(1))
		want[store.Running] = t.takeOne(worker).ID
		want[store.Pending] = t.add(newTask(key("k"), conflict(store.Rerun), source(2)))[0].ID
		want[store.Scheduled] = t.addOne(delay(time.Hour))
		want[store.Available] = t.addOne()
		for _, state := range store.States() {
			t.sameIDs(state.String(), idsOfTasks(t.list(store.Filter{States: []store.State{state}})), []store.ID{want[state]})
		}
		for _, f := range []store.Filter{{}, {IDs: slices.Collect(maps.Values(want))}, {Detail: true}} {
			with := t.list(f)
			f.NoArgs = true
			without := t.list(f)
			for i := range with {
				if len(with[i].Args) == 0 {
					t.Error("a task without args says nothing here")
				}
				with[i].Args, with[i].Detail, without[i].Detail = nil, nil, nil
				if got, want := fmt.Sprintf("%+v", without[i]), fmt.Sprintf("%+v", with[i]); got != want {
					t.Errorf("without args: %s, want %s", got, want)
				}
			}
		}
	}},
	{"list/a page by states is full, whatever lies between", func(t *T) {
		worker := t.worker()
		scheduled := t.addOne(delay(time.Hour))
		waiting := t.addMany(4, queue("idle"))
		running := t.addMany(6)
		for got := 0; got < len(running); {
			got += len(t.take(worker, len(running)-got))
		}
		for _, want := range []struct {
			states []store.State
			ids    []store.ID // a page of three
		}{
			{[]store.State{store.Available}, waiting[1:]},
			{[]store.State{store.Available, store.Scheduled}, waiting[1:]},
			{[]store.State{store.Running}, running[3:]},
			{[]store.State{store.Running, store.Scheduled}, running[3:]},
			{[]store.State{store.Running, store.Available}, running[3:]},
		} {
			got := idsOfTasks(t.list(store.Filter{States: want.states, Limit: 3}))
			slices.Reverse(got)
			t.sameIDs(fmt.Sprint(want.states), got, want.ids)
		}
		rest := t.list(store.Filter{States: []store.State{store.Running, store.Scheduled}, Before: running[0], Limit: 3})
		if len(rest) != 1 || rest[0].ID != scheduled {
			t.Errorf("behind those that run: %v", idsOfTasks(rest))
		}
	}},
	{"list/detail only when asked for", func(t *T) {
		id := t.addOne()
		if got := t.list(store.Filter{IDs: []store.ID{id}}); got[0].Detail != nil {
			t.Error("detail unasked")
		}
		if got := t.get(id); got.Detail == nil || len(got.Detail.Attempts) != 0 {
			t.Errorf("%+v", got.Detail)
		}
	}},
	{"count/unfinished tasks by queue and state, and the age of the oldest", func(t *T) {
		worker := t.worker()
		if got := t.counts(); len(got) != 0 {
			t.Errorf("at first %v", got)
		}
		t.addMany(5)
		t.addMany(3, queue("other"), delay(time.Hour))
		time.Sleep(30 * time.Millisecond)
		tasks := t.take(worker, 3)
		o := failed(&tasks[0], store.Retryable, "x")
		o.Delay = time.Hour
		t.mustEnd(o, to(store.Completed, &tasks[1]))
		want := fmt.Sprint(map[string]int64{"q available": 2, "q running": 1, "q retryable": 1, "other scheduled": 3})
		if got := fmt.Sprint(t.counts()); got != want {
			t.Errorf("got %v, want %v", got, want)
		}
		all, _ := t.Count(t.ctx())
		for _, c := range all {
			if c.Queue == "q" && c.State == store.Available && (c.Oldest < 30*time.Millisecond || c.Oldest > time.Minute) {
				t.Errorf("oldest %v", c.Oldest)
			}
		}
		t.mustEnd(to(store.Available, &tasks[2]))
		t.edit(store.Change{Op: store.Cancel}, idsOfTasks(t.list(store.Filter{Queues: []string{"other"}}))...)
		want = fmt.Sprint(map[string]int64{"q available": 3, "q retryable": 1})
		if got := fmt.Sprint(t.counts()); got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	}},
	{"stats/attempts by queue, kind and slice of time", func(t *T) {
		worker := t.worker()
		t.addMany(4, kind("a"))
		t.addMany(1, kind("b"))
		tasks := t.take(worker, 10)
		for i := range tasks {
			var o store.Outcome
			switch i {
			case 0, 1:
				o = to(store.Completed, &tasks[i])
				o.Ran = time.Duration(i+1) * 100 * time.Millisecond
			case 2:
				o = failed(&tasks[i], store.Retryable, "x")
				o.Delay, o.Ran = time.Hour, 300*time.Millisecond
			case 3:
				o = failed(&tasks[i], store.Discarded, "x")
				o.Ran = 400 * time.Millisecond
			default:
				o = to(store.Cancelled, &tasks[i])
			}
			t.mustEnd(o)
		}
		for _, bucket := range []time.Duration{time.Minute, time.Hour, 24 * time.Hour} {
			sum := map[string]store.Stat{}
			for _, s := range t.stats(store.StatsFilter{Bucket: bucket}) {
				if s.Queue != "q" || !s.At.Equal(s.At.Truncate(bucket)) {
					t.Errorf("%+v", s)
				}
				was := sum[s.Kind]
				was.Completed += s.Completed
				was.Failed += s.Failed
				was.Discarded += s.Discarded
				was.Cancelled += s.Cancelled
				was.Ran.Merge(&s.Ran)
				was.Waited.Merge(&s.Waited)
				sum[s.Kind] = was
			}
			a, b := sum["a"], sum["b"]
			if len(sum) != 2 || a.Completed != 2 || a.Failed != 2 || a.Discarded != 1 || a.Cancelled != 0 || b.Cancelled != 1 ||
				b.Completed != 0 {
				t.Errorf("%v: %+v", bucket, sum)
			}
			if a.Ran.Count != 4 || a.Ran.Sum != time.Second || a.Ran.Max != 400*time.Millisecond || a.Waited.Count != 4 ||
				a.Waited.Sum < 0 {
				t.Errorf("%v: ran %d, %v, %v; waited %d", bucket, a.Ran.Count, a.Ran.Sum, a.Ran.Max, a.Waited.Count)
			}
			if p := a.Ran.Quantile(0.5); p < 200*time.Millisecond || p > 260*time.Millisecond {
				t.Errorf("%v: median %v", bucket, p)
			}
		}
		if s := t.stats(store.StatsFilter{Bucket: time.Hour, Kind: "b"}); len(s) != 1 || s[0].Kind != "b" {
			t.Errorf("%+v", s)
		}
		if s := t.stats(store.StatsFilter{Bucket: time.Hour, Queue: "none"}); len(s) != 0 {
			t.Errorf("%+v", s)
		}
		past := time.Now().Add(-24 * time.Hour)
		if s := t.stats(store.StatsFilter{Bucket: time.Hour, From: past.Add(-time.Hour), Until: past}); len(s) != 0 {
			t.Errorf("of yesterday: %+v", s)
		}
		if s := t.stats(store.StatsFilter{Bucket: time.Hour, From: time.Now().Add(24 * time.Hour)}); len(s) != 0 {
			t.Errorf("of tomorrow: %+v", s)
		}
	}},
	{"errors/failed attempts in groups, latest first", func(t *T) {
		worker := t.worker()
		t.addMany(3)
		t.addOne(queue("other"))
		tasks := t.take(worker, 3)
		t.mustEnd(failed(&tasks[0], store.Retryable, "a"), failed(&tasks[1], store.Discarded, "a"))
		time.Sleep(10 * time.Millisecond)
		other := t.take(worker, 1, "other")
		t.mustEnd(failed(&other[0], store.Retryable, "b"))
		groups := t.groups(store.ErrorFilter{})
		if len(groups) != 2 || groups[0].Fingerprint != "fp-b" || groups[1].Fingerprint != "fp-a" {
			t.Fatalf("%+v", groups)
		}
		a := groups[1]
		if a.Queue != "q" || a.Kind != "k" || a.Count != 2 || a.Waiting != 1 || a.Dead != 1 || a.Sample != "a" ||
			a.First.IsZero() || a.Last.Before(a.First) {
			t.Errorf("%+v", a)
		}
		if a.SampleTask != tasks[0].ID && a.SampleTask != tasks[1].ID {
			t.Errorf("sample %v", a.SampleTask)
		}
		t.admit(10)
		for _, task := range t.take(worker, 10) {
			t.mustEnd(failed(&task, store.Retryable, "c"))
		}
		for _, g := range t.groups(store.ErrorFilter{Queue: "q"}) {
			want := map[string][3]int64{"fp-a": {2, 0, 1}, "fp-c": {1, 1, 0}}[g.Fingerprint]
			if got := [3]int64{g.Count, g.Waiting, g.Dead}; got != want {
				t.Errorf("%s: %v, want %v", g.Fingerprint, got, want)
			}
		}
		if g := t.groups(store.ErrorFilter{Limit: 1}); len(g) != 1 {
			t.Errorf("limit of 1: %d", len(g))
		}
		if g := t.groups(store.ErrorFilter{Kind: "none"}); len(g) != 0 {
			t.Errorf("no such kind: %d", len(g))
		}
		if g := t.groups(store.ErrorFilter{Since: time.Now().Add(time.Hour)}); len(g) != 0 {
			t.Errorf("from the future: %d", len(g))
		}
	}},
	{"errors/a retried group waits no more", func(t *T) {
		worker := t.worker()
		t.addMany(2)
		tasks := t.take(worker, 2)
		o := failed(&tasks[0], store.Retryable, "a")
		o.Delay = time.Hour
		t.mustEnd(o, failed(&tasks[1], store.Discarded, "a"))
		t.edit(store.Change{Op: store.Retry}, tasks[0].ID, tasks[1].ID)
		if g := t.groups(store.ErrorFilter{})[0]; g.Count != 2 || g.Waiting != 0 || g.Dead != 0 {
			t.Errorf("%+v", g)
		}
	}},
}
