package storetest

import (
	"errors"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

var admitClauses = []clause{
	{"admit/due tasks become available in order of their run time, others wait", func(t *T) {
		added := t.add(newTask(delay(120*time.Millisecond)), newTask(delay(60*time.Millisecond)))
		late, soon := added[0].ID, added[1].ID
		never := t.addOne(delay(time.Hour))
		did := t.admit(10)
		if did.Next > time.Hour {
			t.Errorf("%+v", did)
		}
		count := did.Count // if that took long
		t.eventually("both admitted", func() bool { count += t.admit(10).Count; return count == 2 })
		got := t.take(t.worker(), 10)
		t.sameIDs("claimed", idsOfTasks(got), []store.ID{soon, late})
		for _, task := range got {
			if task.ClaimedAt.Before(task.RunAt.Add(-2 * time.Millisecond)) {
				t.Errorf("claimed at %v, due at %v", task.ClaimedAt, task.RunAt)
			}
		}
		t.is(never, store.Scheduled)
	}},
	{"admit/says how many, of which queues, and when the next is due", func(t *T) {
		if did := t.admit(10); did.Count != 0 || did.Next >= 0 || len(did.Queues) != 0 {
			t.Errorf("nothing waits: %+v", did)
		}
		t.addMany(3, delay(10*time.Millisecond), queue("a"))
		t.addMany(2, delay(10*time.Millisecond), queue("b"))
		t.addOne(delay(time.Hour))
		time.Sleep(50 * time.Millisecond)
		first := t.admit(4)
		if first.Count != 4 || first.Next != 0 {
			t.Errorf("a limit of 4: %+v", first)
		}
		rest := t.admit(4)
		if rest.Count != 1 || rest.Next < 50*time.Minute || rest.Next > time.Hour {
			t.Errorf("the rest: %+v", rest)
		}
		queues := append(first.Queues, rest.Queues...)
		slices.Sort(queues)
		if !slices.Equal(slices.Compact(queues), []string{"a", "b"}) {
			t.Errorf("queues %v", queues)
		}
	}},
	{"admit/retries and snoozes come back with their counts", func(t *T) {
		worker := t.worker()
		t.addMany(2)
		tasks := t.take(worker, 2)
		o := to(store.Scheduled, &tasks[1])
		o.Attempt = 0
		t.mustEnd(failed(&tasks[0], store.Retryable, "x"), o)
		t.is(tasks[0].ID, store.Retryable)
		t.is(tasks[1].ID, store.Scheduled)
		if did := t.admit(10); did.Count != 2 {
			t.Fatalf("%+v", did)
		}
		for _, task := range t.take(worker, 2) {
			want := 2
			if task.ID == tasks[1].ID {
				want = 1
			}
			if task.Attempt != want {
				t.Errorf("attempt %d, want %d", task.Attempt, want)
			}
		}
	}},
	{"admit/priorities hold for tasks that waited", func(t *T) {
		low := t.addOne(priority(5), delay(time.Millisecond))
		high := t.addOne(priority(-5), delay(20*time.Millisecond))
		now := t.addOne(priority(0))
		time.Sleep(60 * time.Millisecond)
		t.admit(10)
		t.inOrder("claimed", idsOfTasks(t.take(t.worker(), 10)), []store.ID{high, now, low})
	}},
	{"admit/what is due does not wait behind what was edited", func(t *T) {
		worker := t.worker()
		task := t.addOne()
		running := t.takeOne(worker)
		ids := t.addMany(3, delay(time.Hour))
		t.edit(store.Change{Op: store.Retry}, ids[1])
		t.mustEnd(failed(running, store.Retryable, "x"))
		time.Sleep(10 * time.Millisecond)
		if did := t.admit(10); did.Count != 1 {
			t.Errorf("%+v", did)
		}
		t.is(task, store.Available)
	}},
	{"admit/many at once", func(t *T) {
		t.addMany(2500, delay(time.Millisecond))
		time.Sleep(20 * time.Millisecond)
		if did := t.admit(5000); did.Count != 2500 || did.Next >= 0 {
			t.Errorf("%+v", did)
		}
		if got := t.take(t.worker(), 5000); len(got) != 2500 {
			t.Errorf("claimed %d", len(got))
		}
	}},
}

var rescueClauses = []clause{
	{"rescue/a worker that stops beating loses its tasks, every one of them", func(t *T) {
		victim, survivor := NewID(), t.worker()
		t.addMany(6)
		kept := t.take(survivor, 2)
		t.beat(victim, 50*time.Millisecond)
		held := t.take(victim, 3)
		var got []store.Task
		t.eventually("rescued", func() bool { got = t.rescue(10); return len(got) > 0 })
		ids, want := idsOfTasks(got), idsOfTasks(held)
		sortIDs(ids)
		sortIDs(want)
		t.sameIDs("rescued", ids, want)
		for i := range got {
			task := got[i]
			if task.State != store.Running || task.Worker != victim || task.Lease != held[0].Lease || task.Attempt != 1 ||
				len(task.Args) == 0 {
				t.Errorf("%+v", task)
			}
		}
		if again := t.rescue(10); len(again) != 3 {
			t.Errorf("unfinished, they come again: %d", len(again))
		}
		if few := t.rescue(2); len(few) != 2 {
			t.Errorf("limit of 2: %d", len(few))
		}
		for i := range got {
			o := failed(&got[i], store.Available, "died")
			o.Attempt, o.Crashes = 0, 1
			t.mustEnd(o)
		}
		if again := t.rescue(10); len(again) != 0 {
			t.Errorf("finished, they come again: %d", len(again))
		}
		for _, task := range t.take(survivor, 10) {
			if slices.Contains(want, task.ID) && task.Crashes != 1 {
				t.Errorf("%+v", task)
			}
		}
		t.mustEnd(to(store.Completed, &kept[0]))
	}},
	{"rescue/a dead worker never comes back under its id", func(t *T) {
		victim := NewID()
		t.beat(victim, 20*time.Millisecond)
		t.addOne()
		t.takeOne(victim)
		t.eventually("rescued", func() bool { return len(t.rescue(10)) == 1 })
		_, err := t.Extend(t.ctx(), store.Beat{Worker: store.Worker{ID: victim}, TTL: time.Minute})
		if !errors.Is(err, store.ErrWorkerDead) {
			t.Errorf("extend: %v", err)
		}
		_, err = t.Claim(t.ctx(), store.ClaimRequest{Worker: victim, Queues: []string{"q"}, Limit: 1,
			Token: store.NewToken()})
		if !errors.Is(err, store.ErrWorkerDead) {
			t.Errorf("claim: %v", err)
		}
		if all, _ := t.Workers(t.ctx()); len(all) != 0 {
			t.Errorf("still listed: %+v", all)
		}
	}},
	{"rescue/a worker that is late but not declared dead goes on", func(t *T) {
		slow := NewID()
		t.beat(slow, 20*time.Millisecond)
		t.addOne()
		task := t.takeOne(slow)
		time.Sleep(50 * time.Millisecond)
		t.beat(slow, time.Minute)
		if got := t.rescue(10); len(got) != 0 {
			t.Errorf("rescued %d", len(got))
		}
		t.mustEnd(to(store.Completed, task))
	}},
	{"rescue/of a late worker and its rescuer the first to finish wins", func(t *T) {
		for _, late := range []bool{true, false} {
			victim := NewID()
			t.beat(victim, 20*time.Millisecond)
			id := t.addOne()
			held := t.takeOne(victim)
			var got []store.Task
			t.eventually("rescued", func() bool { got = t.rescue(10); return len(got) == 1 })
			own, rescuers := to(store.Completed, held), failed(&got[0], store.Discarded, "died")
			want := store.Completed
			if late {
				own, rescuers = rescuers, own
				want = store.Discarded
			}
			t.mustEnd(own)
			t.sameIDs("lost", t.end(rescuers), []store.ID{id})
			t.is(id, want)
		}
	}},
	{"rescue/living workers keep their tasks", func(t *T) {
		worker := t.worker()
		t.addMany(3)
		t.take(worker, 3)
		time.Sleep(30 * time.Millisecond)
		if got := t.rescue(10); len(got) != 0 {
			t.Errorf("rescued %d", len(got))
		}
	}},
}

var pruneClauses = []clause{
	{"prune/finished tasks go when their retention is over, by outcome and queue", func(t *T) {
		worker := t.worker()
		finish := func(q string, state store.State) store.ID {
			id := t.addOne(queue(q), key("key-"+q+state.String()))
			tasks := t.take(worker, 1, q)
			t.mustEnd(failed(&tasks[0], state, "x"))
			return id
		}
		a, b, c := finish("q", store.Completed), finish("q", store.Cancelled), finish("q", store.Discarded)
		d, e := finish("own", store.Completed), finish("own", store.Discarded)
		waiting := t.addOne(delay(time.Hour))
		time.Sleep(30 * time.Millisecond)
		keep := store.Retention{Completed: time.Millisecond, Cancelled: time.Hour,
			Queues: map[string]store.Retention{"own": {Discarded: time.Millisecond}}}
		t.prune(keep)
		t.gone(a)
		t.gone(e)
		for _, id := range []store.ID{b, c, d, waiting} {
			t.get(id)
		}
	}},
	{"prune/a queue that keeps its tasks for less loses them before others do", func(t *T) {
		worker := t.worker()
		end := func(q string, state store.State) store.ID {
			id := t.addOne(queue(q))
			t.mustEnd(failed(&t.take(worker, 1, q)[0], state, "x"))
			return id
		}
		keep := store.Retention{Completed: time.Hour, Cancelled: time.Hour, Discarded: time.Hour,
			Queues: map[string]store.Retention{
				"brief": {Completed: time.Millisecond, Cancelled: time.Millisecond, Discarded: time.Millisecond}, "audit": {}}}
		for _, state := range []store.State{store.Completed, store.Cancelled, store.Discarded} {
			brief, other, audit := end("brief", state), end("q", state), end("audit", state)
			time.Sleep(20 * time.Millisecond)
			t.prune(keep)
			t.gone(brief)
			t.is(other, state)
			t.is(audit, state)
		}
		keep.Completed, keep.Cancelled, keep.Discarded = time.Millisecond, time.Millisecond, time.Millisecond
		t.prune(keep)
		if left := t.list(store.Filter{}); len(left) != 3 || left[0].Queue != "audit" {
			t.Errorf("%d are left, want those of the queue that keeps for ever", len(left))
		}
	}},
	{"prune/goes in bounded steps until it is done", func(t *T) {
		worker := t.worker()
		t.addMany(50)
		for _, task := range t.take(worker, 50) {
			t.mustEnd(to(store.Completed, &task))
		}
		left := 50
		// Other transactions may still be open, so try for a while.
		for end := time.Now().Add(5 * time.Second); left > 0 && time.Now().Before(end); {
			time.Sleep(20 * time.Millisecond)
			t.prune(store.Retention{Completed: time.Millisecond})
			left = len(t.list(store.Filter{}))
		}
		if left > 0 {
			t.Errorf("left %d", left)
		}
	}},
	{"prune/zero keeps for ever", func(t *T) {
		worker := t.worker()
		id := t.addOne()
		t.mustEnd(to(store.Completed, t.takeOne(worker)))
		t.prune(store.Retention{})
		t.is(id, store.Completed)
	}},
	{"prune/a pruned key starts anew", func(t *T) {
		worker := t.worker()
		t.addOne(key("a"), conflict(store.Rerun), source(100))
		t.mustEnd(to(store.Completed, t.takeOne(worker)))
		if r := t.add(newTask(key("a"), conflict(store.Rerun), source(50)))[0]; r.Result != store.Stale {
			t.Errorf("before: %+v", r)
		}
		time.Sleep(20 * time.Millisecond)
		t.prune(store.Retention{Completed: time.Millisecond})
		if r := t.add(newTask(key("a"), conflict(store.Rerun), source(50)))[0]; r.Result != store.Added {
			t.Errorf("after: %+v", r)
		}
	}},
	{"prune/a key stays with the task that holds it when those before are pruned", func(t *T) {
		worker := t.worker()
		for range 2 {
			t.addOne(key("a"))
			t.mustEnd(to(store.Completed, t.takeOne(worker)))
		}
		holder := t.addOne(key("a"))
		skipped := func(when string) {
			t.Helper()
			if r := t.add(newTask(key("a")))[0]; r.Result != store.Skipped || r.ID != holder {
				t.Fatalf("%s: %+v: want it skipped for %v", when, r, holder)
			}
		}
		time.Sleep(20 * time.Millisecond)
		t.prune(store.Retention{Completed: time.Millisecond})
		skipped("available")
		task := t.takeOne(worker)
		t.prune(store.Retention{Completed: time.Millisecond})
		skipped("running")
		t.mustEnd(failed(task, store.Retryable, "x"))
		t.prune(store.Retention{Completed: time.Millisecond})
		skipped("waiting for its retry")
	}},
	{"prune/what is pruned stays in the statistics", func(t *T) {
		worker := t.worker()
		t.addOne()
		t.mustEnd(to(store.Completed, t.takeOne(worker)))
		time.Sleep(20 * time.Millisecond)
		t.prune(store.Retention{Completed: time.Millisecond, Stats: time.Hour})
		if s := t.stats(store.StatsFilter{Bucket: time.Hour}); len(s) != 1 || s[0].Completed != 1 {
			t.Errorf("%+v", s)
		}
	}},
}

// prune prunes in bounded steps until nothing is left to delete.
func (t *T) prune(keep store.Retention) {
	t.Helper()
	const limit = 20
	for range 1000 {
		n, err := t.Prune(t.ctx(), t.lead(), keep, limit)
		if err != nil || n > limit {
			t.Fatalf("prune: %d of at most %d, %v", n, limit, err)
		}
		if n < limit {
			return
		}
	}
	t.Fatal("prune is never done")
}
