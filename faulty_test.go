package tusk_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
	"github.com/tuskqueue/tusk/store/storetest"
)

// Any call of the store may fail, before it takes effect or after. All the same,
// each acknowledged task is run and completed once, no tick is lost or doubled, and
// nothing hangs.
func TestAnyCallOfTheStoreMayFail(t *testing.T) {
	var usual map[string]int
	synctest.Test(t, func(t *testing.T) {
		d := newDay(t)
		d.live()
		usual = d.faulty.Calls()
	})
	for method, n := range usual {
		if n = min(n, mostCalls[method]); underRace || testing.Short() {
			n = min(n, 3)
		}
		for call := 1; call <= n; call++ {
			for _, f := range faults(method, call) {
				t.Run(fmt.Sprintf("%s %d, %d times, after %v, %v", method, call, f.Times, f.After, f.Err), func(t *testing.T) {
					if !underRace {
						t.Parallel()
					}
					synctest.Test(t, func(t *testing.T) { newDay(t, f).live() })
				})
			}
		}
	}
}

// mostCalls is how many calls of a method are made to fail; later calls are alike.
var mostCalls = map[string]int{"Enqueue": 9, "Claim": 10, "Extend": 6, "Finish": 10, "Lead": 3, "Admit": 3, "Rescue": 3,
	"Prune": 2, "Edit": 1, "Records": 3, "PutRecord": 3}

func faults(method string, call int) []storetest.Fault {
	f := storetest.Fault{Method: method, Call: call, Times: 1, Err: store.ErrUnavailable}
	late, outage := f, f
	late.After = true
	outage.Times = 4
	all := []storetest.Fault{f, late}
	if call%3 == 1 {
		all = append(all, outage)
	}
	for _, err := range map[string][]error{
		"Enqueue": {store.ErrNotCommitted}, "Claim": {store.ErrWorkerDead}, "Extend": {store.ErrWorkerDead},
		"Admit": {store.ErrNotLeader}, "Rescue": {store.ErrNotLeader}, "Prune": {store.ErrNotLeader},
		"PutRecord": {store.ErrNotLeader, store.ErrConflict},
	}[method] {
		f.Err = err
		all = append(all, f)
	}
	return all
}

// day is a client and a worker on a store that fails, another worker that dies, and
// the results.
type day struct {
	t      *testing.T
	fault  storetest.Fault
	sound  *memory.Store
	faulty *storetest.Faulty
	client *tusk.Client

	mu   sync.Mutex
	well map[tusk.ID]int // handlers that returned nil
	seen map[tusk.ID]int // handlers that were called
}

func newDay(t *testing.T, faults ...storetest.Fault) *day {
	d := &day{t: t, sound: memory.New(), well: map[tusk.ID]int{}, seen: map[tusk.ID]int{}}
	if len(faults) > 0 {
		d.fault = faults[0]
	}
	d.faulty = storetest.NewFaulty(d.sound, faults...)
	d.client = clientOf(t, d.faulty)
	return d
}

// The kinds of task of a day.
const (
	plain = iota
	failsOnce
	snoozesOnce
	takesLong
	isCancelled
	isOrphaned
	ticks
)

func (d *day) handle(ctx context.Context, t *tusk.Task[count]) error {
	d.mu.Lock()
	d.seen[t.ID]++
	first := d.seen[t.ID] == 1
	d.mu.Unlock()
	switch {
	case t.Args.N == failsOnce && first:
		return tusk.RetryAfter(3*time.Second, errors.New("not yet"))
	case t.Args.N == snoozesOnce && first:
		return tusk.Snooze(3 * time.Second)
	case t.Args.N == takesLong:
		for i := range 6 {
			t.SetProgress(float64(i), "on the way")
			time.Sleep(time.Second)
		}
	case t.Args.N == isCancelled:
		<-ctx.Done()
		return ctx.Err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.well[t.ID]++
	return nil
}

// live lets the day pass and checks the results.
func (d *day) live() {
	d.t.Helper()
	sound := clientOf(d.t, d.sound)
	if err := sound.PutSchedule(context.Background(),
		tusk.Schedule{Name: "often", Spec: "@every 20s", Args: count{ticks}}); err != nil {
		d.t.Fatal(err)
	}
	orphan, bury := d.orphan(sound)
	mux := tusk.NewMux()
	tusk.Handle(mux, d.handle)
	w, err := tusk.NewWorker(d.client, mux, &tusk.WorkerConfig{Queues: []string{"default", "old"}, Concurrency: 8})
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()

	acknowledged := map[tusk.ID]int{orphan: isOrphaned}
	d.enqueue(acknowledged, plain, nil)
	d.enqueue(acknowledged, failsOnce, nil)
	d.enqueue(acknowledged, snoozesOnce, nil)
	d.enqueue(acknowledged, takesLong, nil)
	d.enqueue(acknowledged, plain, &tusk.Options{Delay: 5 * time.Second})
	for range 2 { // both while the first takesLong runs or is about to
		d.enqueue(acknowledged, takesLong, &tusk.Options{Key: "document", OnConflict: tusk.Rerun})
		time.Sleep(time.Second)
	}
	cancelled := d.enqueue(acknowledged, isCancelled, nil)
	time.Sleep(2 * time.Second)
	d.insist(func() error {
		_, err := d.client.Cancel(context.Background(), cancelled, "not needed")
		if errors.Is(err, tusk.ErrRefused) { // the call that seemed to fail cancelled it
			return nil
		}
		return err
	})

	time.Sleep(72 * time.Second)
	stop()
	if err := <-done; err != nil && !errors.Is(err, d.fault.Err) {
		d.t.Errorf("the worker ended with %v", err)
	}
	bury()
	d.check(acknowledged)
	d.checkTicks()
}

// enqueue repeats an enqueue until it is acknowledged, as a client would.
func (d *day) enqueue(acknowledged map[tusk.ID]int, n int, o *tusk.Options) (id tusk.ID) {
	d.t.Helper()
	d.insist(func() error {
		r, err := d.client.Enqueue(context.Background(), count{n}, o)
		if err == nil {
			id = r.ID
			acknowledged[id] = n
		}
		return err
	})
	return id
}

func (d *day) insist(f func() error) {
	d.t.Helper()
	for range 10 {
		err := f()
		if err == nil {
			return
		}
		if !errors.Is(err, d.fault.Err) {
			d.t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	d.t.Fatal("still failing")
}

// orphan enqueues a task, which a worker claims before it falls silent. bury ends
// that worker.
func (d *day) orphan(sound *tusk.Client) (id tusk.ID, bury func()) {
	d.t.Helper()
	silent := &cut{Store: d.sound}
	mux, held := tusk.NewMux(), make(chan bool)
	tusk.HandleFunc(mux, func(ctx context.Context, _ count) error { close(held); <-ctx.Done(); return ctx.Err() })
	w, err := tusk.NewWorker(clientOf(d.t, silent), mux, &tusk.WorkerConfig{Queues: []string{"old"}, Concurrency: 1,
		NeverLead: true, ShutdownTimeout: time.Second})
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	r, err := sound.Enqueue(context.Background(), count{isOrphaned}, &tusk.Options{Queue: "old"})
	if err != nil {
		d.t.Fatal(err)
	}
	<-held
	silent.off.Store(true)
	return r.ID, func() { stop(); <-done }
}

// check checks every acknowledged task, and that nothing else is left behind.
func (d *day) check(acknowledged map[tusk.ID]int) {
	d.t.Helper()
	all, err := d.sound.List(context.Background(), store.Filter{Limit: store.MaxPage, Detail: true})
	if err != nil {
		d.t.Fatal(err)
	}
	for id, n := range acknowledged {
		i := slices.IndexFunc(all, func(t store.Task) bool { return t.ID == id })
		if i < 0 {
			d.t.Errorf("task of kind %d is gone", n)
			continue
		}
		task := &all[i]
		completed := 0
		for _, a := range task.Detail.Attempts {
			if a.Outcome == store.Completed {
				completed++
			}
		}
		want, runs := store.Completed, 1
		if n == isCancelled || task.Reason == "superseded" { // it crashed, and the next task with its key replaced it
			want, runs = store.Cancelled, 0
		}
		if task.State != want || completed != runs {
			d.t.Errorf("task of kind %d is %v, completed %d times: %+v", n, task.State, completed, task.Detail.Attempts)
		}
		if d.well[id] != runs && d.fault.Err != store.ErrWorkerDead {
			d.t.Errorf("task of kind %d was run %d times", n, d.well[id])
		}
	}
	for i := range all {
		if task := &all[i]; task.State == store.Running || !task.State.Finished() &&
			string(task.Args) != fmt.Sprintf(`{"N":%d}`, isCancelled) {
			d.t.Errorf("left behind: %v %s", task.State, task.Args)
		}
	}
}

// checkTicks checks that each tick has its task.
func (d *day) checkTicks() {
	d.t.Helper()
	tasks, err := clientOf(d.t, d.sound).List(context.Background(), tusk.Filter{Limit: store.MaxPage})
	if err != nil {
		d.t.Fatal(err)
	}
	var seen []time.Time
	for _, task := range tasks {
		if task.Schedule == "often" {
			seen = append(seen, task.Tick)
		}
	}
	slices.SortFunc(seen, time.Time.Compare)
	if len(seen) != 3 && len(seen) != 4 {
		d.t.Errorf("%d ticks in 75 to 80 seconds", len(seen))
	}
	for i := 1; i < len(seen); i++ {
		if seen[i].Sub(seen[i-1]) != 20*time.Second {
			d.t.Errorf("tick %v follows %v", seen[i], seen[i-1])
		}
	}
}
