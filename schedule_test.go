package tusk_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// fired collects the ticks that handlers saw.
type fired struct {
	mu    sync.Mutex
	ticks []time.Time
}

func (f *fired) handle(_ context.Context, t *tusk.Task[count]) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ticks = append(f.ticks, t.Tick)
	return nil
}

func (f *fired) seen() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.SortedFunc(slices.Values(f.ticks), time.Time.Compare)
}

func (s *shop) schedule(x tusk.Schedule) {
	s.t.Helper()
	if x.Args == nil {
		x.Args = count{}
	}
	if err := s.client.PutSchedule(context.Background(), x); err != nil {
		s.t.Fatal(err)
	}
}

func TestSchedules(t *testing.T) {
	ctx := context.Background()
	inBubble(t, "each tick fires once with three leaders at hand, and periods do not drift", func(t *testing.T, s *shop) {
		var f fired
		tusk.Handle(s.mux, f.handle)
		s.schedule(tusk.Schedule{Name: "quarter", Spec: "@every 3m"})
		var stops []func() error
		for range 3 {
			_, stop := s.work(nil)
			stops = append(stops, stop)
		}
		time.Sleep(2*time.Hour + time.Minute)
		ticks := f.seen()
		if len(ticks) != 40 {
			t.Errorf("%d ticks in two hours", len(ticks))
		}
		for i := 1; i < len(ticks); i++ {
			if ticks[i].Sub(ticks[i-1]) != 3*time.Minute {
				t.Errorf("tick %v follows %v", ticks[i], ticks[i-1])
			}
		}
		for _, stop := range stops {
			s.stop(stop)
		}
	})
	inBubble(t, "cron fires in its time zone", func(t *testing.T, s *shop) {
		var f fired
		tusk.Handle(s.mux, f.handle)
		s.schedule(tusk.Schedule{Name: "twice", Spec: "30 2,4 * * *", Zone: "Europe/Berlin"})
		_, stop := s.work(nil)
		time.Sleep(4 * time.Hour)
		berlin, err := time.LoadLocation("Europe/Berlin")
		if err != nil {
			t.Fatal(err)
		}
		ticks := f.seen()
		if len(ticks) != 2 {
			t.Fatal(ticks)
		}
		for _, tick := range ticks {
			if at := tick.In(berlin); at.Hour()%2 != 0 || at.Minute() != 30 {
				t.Error(at)
			}
		}
		s.stop(stop)
	})
	for _, c := range []struct {
		missed tusk.MissedPolicy
		limit  int
		want   int
	}{{tusk.MissedOnce, 0, 1}, {"", 0, 1}, {tusk.MissedSkip, 0, 0}, {tusk.MissedAll, 0, 6}, {tusk.MissedAll, 4, 4}} {
		inBubble(t, "missed ticks follow the policy "+string(c.missed), func(t *testing.T, s *shop) {
			var f fired
			tusk.Handle(s.mux, f.handle)
			s.schedule(tusk.Schedule{Name: "hourly", Spec: "0 * * * *", Missed: c.missed, Cap: c.limit,
				Overlap: tusk.OverlapAllow})
			_, stop := s.work(nil)
			time.Sleep(time.Minute)
			s.stop(stop)
			time.Sleep(6*time.Hour + 10*time.Minute)
			_, stop = s.work(nil)
			time.Sleep(time.Minute)
			ticks := f.seen()
			if len(ticks) != c.want {
				t.Errorf("%d ticks, want %d", len(ticks), c.want)
			}
			if n := len(ticks); n > 0 && time.Since(ticks[n-1]) > time.Hour {
				t.Errorf("the latest tick is missing: %v", ticks)
			}
			s.stop(stop)
		})
	}
	for _, c := range []struct {
		overlap tusk.OverlapPolicy
		want    int
		fired   int64
		skipped int64
	}{{tusk.OverlapSkip, 1, 1, 4}, {tusk.OverlapBuffer, 2, 5, 0}, {tusk.OverlapAllow, 5, 5, 0}} {
		inBubble(t, "overlapping ticks follow the policy "+string(c.overlap), func(t *testing.T, s *shop) {
			release := make(chan struct{})
			var f fired
			tusk.Handle(s.mux, func(ctx context.Context, task *tusk.Task[count]) error {
				<-release
				return f.handle(ctx, task)
			})
			s.schedule(tusk.Schedule{Name: "slow", Spec: "* * * * *", Overlap: c.overlap})
			_, stop := s.work(nil)
			time.Sleep(5*time.Minute + 10*time.Second)
			if err := s.client.PauseSchedule(ctx, "slow"); err != nil {
				t.Fatal(err)
			}
			info, err := s.client.Schedule(ctx, "slow")
			if err != nil || info.Fired != c.fired || info.Skipped != c.skipped {
				t.Errorf("fired %d and skipped %d, want %d and %d: %v", info.Fired, info.Skipped, c.fired, c.skipped, err)
			}
			if id, err := tusk.ParseID(info.LastTask); err != nil || s.get(id).ID != id {
				t.Errorf("last task %q: %v", info.LastTask, err)
			}
			close(release)
			time.Sleep(10 * time.Second)
			if ticks := f.seen(); len(ticks) != c.want {
				t.Errorf("%d runs: %v", len(ticks), ticks)
			}
			s.stop(stop)
		})
	}
	inBubble(t, "a schedule is paused, resumed, run by hand, changed and removed", func(t *testing.T, s *shop) {
		var f fired
		tusk.Handle(s.mux, f.handle)
		_, stop := s.work(nil)
		s.schedule(tusk.Schedule{Name: "hourly", Spec: "0 * * * *"})
		if err := s.client.PauseSchedule(ctx, "hourly"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Hour)
		if len(f.seen()) != 0 {
			t.Error("fired while paused")
		}
		if _, err := s.client.RunSchedule(ctx, "hourly"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if len(f.seen()) != 1 {
			t.Error("did not run by hand")
		}
		if err := s.client.ResumeSchedule(ctx, "hourly"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if n := len(f.seen()); n != 2 {
			t.Errorf("%d runs after the resume", n)
		}
		s.schedule(tusk.Schedule{Name: "hourly", Spec: "*/10 * * * *"})
		time.Sleep(time.Hour)
		if n := len(f.seen()); n != 8 {
			t.Errorf("%d runs after the change", n)
		}
		all, err := s.client.Schedules(ctx)
		if err != nil || len(all) != 1 || all[0].Fired != 7 || all[0].Words == "" {
			t.Errorf("%+v, %v", all, err)
		}
		if err := s.client.RemoveSchedule(ctx, "hourly"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if n := len(f.seen()); n != 8 {
			t.Errorf("%d runs after the removal", n)
		}
		for _, err := range []error{s.client.RemoveSchedule(ctx, "hourly"), s.client.PauseSchedule(ctx, "x"),
			s.client.ResumeSchedule(ctx, "x")} {
			if !errors.Is(err, tusk.ErrNotFound) {
				t.Error(err)
			}
		}
		s.stop(stop)
	})
	inBubble(t, "a run by hand is not put off by the jitter", func(t *testing.T, s *shop) {
		s.schedule(tusk.Schedule{Name: "daily", Spec: "@daily", Jitter: 24 * time.Hour})
		for range 3 { // a random delay might be zero once
			run, err := s.client.RunSchedule(ctx, "daily")
			if err != nil {
				t.Fatal(err)
			}
			if got := s.get(run.ID); got.State != tusk.StateAvailable {
				t.Errorf("it is %v, until %v", got.State, got.RunAt)
			}
		}
	})
	inBubble(t, "each run is put off by a part of the jitter, and keeps its tick", func(t *testing.T, s *shop) {
		s.schedule(tusk.Schedule{Name: "jittery", Spec: "* * * * *", Jitter: 30 * time.Second, Overlap: tusk.OverlapAllow})
		defer s.lead()()
		time.Sleep(30*time.Minute + 10*time.Second)
		tasks, err := s.client.List(ctx, tusk.Filter{Limit: 1000})
		late := map[time.Duration]bool{}
		for _, task := range tasks {
			by := task.RunAt.Sub(task.Tick).Truncate(time.Second)
			late[by] = true
			if task.Tick.Second() != 0 || by < 0 || by > 31*time.Second {
				t.Errorf("tick %v runs at %v", task.Tick, task.RunAt)
			}
		}
		if len(tasks) != 30 || len(late) < 5 || err != nil {
			t.Errorf("%d tasks, %d delays, %v", len(tasks), len(late), err)
		}
	})
	inBubble(t, "code wins over the database, but for a pause", func(t *testing.T, s *shop) {
		inCode := tusk.Schedule{Name: "x", Spec: "0 * * * *", Options: &tusk.Options{Priority: 1}}
		s.schedule(inCode)
		// an operator's change
		s.schedule(tusk.Schedule{Name: "x", Spec: "0 * * * *", Options: &tusk.Options{Priority: 7}, Missed: tusk.MissedAll})
		if err := s.client.PauseSchedule(ctx, "x"); err != nil {
			t.Fatal(err)
		}
		s.schedule(inCode) // the program starts again
		if got, err := s.client.Schedule(ctx, "x"); err != nil || got.Priority != 1 || got.Missed != "" || !got.Paused {
			t.Errorf("%+v, %v", got, err)
		}
	})
	inBubble(t, "a range is backfilled, each tick once while it is unfinished", func(t *testing.T, s *shop) {
		var f fired
		tusk.Handle(s.mux, f.handle)
		s.schedule(tusk.Schedule{Name: "hourly", Spec: "0 * * * *",
			Options: &tusk.Options{Queue: "fill", Tenant: "acme", Partition: "p"}})
		if err := s.client.PauseSchedule(ctx, "hourly"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Hour)
		from := time.Now().Truncate(time.Hour).Add(-6 * time.Hour)
		until := from.Add(5 * time.Hour)
		results, err := s.client.BackfillSchedule(ctx, "hourly", from, until)
		if err != nil || len(results) != 5 {
			t.Fatal(results, err)
		}
		again, err := s.client.BackfillSchedule(ctx, "hourly", from.Add(-time.Hour), until)
		if err != nil || len(again) != 6 || again[0].Result != tusk.Added || again[1].Result != tusk.Skipped ||
			again[1].ID != results[0].ID {
			t.Error(again, err)
		}
		_, stop := s.work(&tusk.WorkerConfig{Queues: []string{"fill"}, Concurrency: 1})
		time.Sleep(time.Minute)
		ticks := f.seen()
		if len(ticks) != 6 || !ticks[0].Equal(from.Add(-time.Hour)) || !ticks[5].Equal(until.Add(-time.Hour)) {
			t.Error(ticks)
		}
		if task := s.get(results[0].ID); task.Tenant != "acme" || task.Partition != "p" || task.Schedule != "hourly" {
			t.Errorf("%+v", task)
		}
		s.stop(stop)
		for _, bad := range []func() ([]tusk.Enqueued, error){
			func() ([]tusk.Enqueued, error) {
				return s.client.BackfillSchedule(ctx, "hourly", from, time.Now().Add(time.Hour))
			},
			func() ([]tusk.Enqueued, error) {
				return s.client.BackfillSchedule(ctx, "hourly", from.AddDate(-3, 0, 0), until)
			},
		} {
			if _, err := bad(); !errors.Is(err, tusk.ErrInvalid) {
				t.Error(err)
			}
		}
		if _, err := s.client.BackfillSchedule(ctx, "hourly", until, from); !errors.Is(err, tusk.ErrInvalid) ||
			!strings.Contains(err.Error(), "after until") {
			t.Error(err)
		}
		if _, err := s.client.BackfillSchedule(ctx, "none", from, until); !errors.Is(err, tusk.ErrNotFound) {
			t.Error(err)
		}
	})
	inBubble(t, "a backfill ends by the database's clock", func(t *testing.T, s *shop) {
		ctx := context.Background()
		if err := s.client.PutSchedule(ctx, tusk.Schedule{Name: "hourly", Spec: "0 * * * *", Args: count{}}); err != nil {
			t.Fatal(err)
		}
		for ahead, want := range map[time.Duration]bool{-2 * time.Hour: false, 0: true, 2 * time.Hour: true} {
			client := clientOf(t, skewed{s.store, ahead})
			_, err := client.BackfillSchedule(ctx, "hourly", time.Now().Add(-3*time.Hour), time.Now().Add(ahead/2-time.Minute))
			if (err == nil) != want || err != nil && !errors.Is(err, tusk.ErrInvalid) {
				t.Errorf("the database's clock is ahead by %v: %v", ahead, err)
			}
		}
	})
	inBubble(t, "bad schedules are refused", func(t *testing.T, s *shop) {
		for name, x := range map[string]tusk.Schedule{
			"no name":       {Spec: "* * * * *", Args: count{}},
			"no args":       {Name: "x", Spec: "* * * * *"},
			"never fires":   {Name: "x", Spec: "0 0 31 2 *", Args: count{}},
			"no such zone":  {Name: "x", Spec: "* * * * *", Zone: "Mars/Phobos", Args: count{}},
			"missed policy": {Name: "x", Spec: "* * * * *", Missed: "maybe", Args: count{}},
			"overlap":       {Name: "x", Spec: "* * * * *", Overlap: "maybe", Args: count{}},
			"cap":           {Name: "x", Spec: "* * * * *", Cap: -1, Args: count{}},
			"a key":         {Name: "x", Spec: "* * * * *", Args: count{}, Options: &tusk.Options{Key: "k"}},
		} {
			if err := s.client.PutSchedule(ctx, x); !errors.Is(err, tusk.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func ExampleScheduleInfo_Ticks() {
	ctx, client := context.Background(), newClient()
	err := client.PutSchedule(ctx, tusk.Schedule{
		Name: "morning-report", Spec: "30 7 * * 1-5", Zone: "Europe/Berlin",
		Args: Greet{Name: "everybody"}, Options: &tusk.Options{Queue: "reports"},
		Missed: tusk.MissedAll, Cap: 3, Overlap: tusk.OverlapBuffer, Jitter: 5 * time.Second,
	})
	if err != nil {
		fmt.Println(err)
	}
	s, _ := client.Schedule(ctx, "morning-report")
	fmt.Println(s.Words)
	next, _ := s.Ticks(time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC), 2)
	fmt.Println(next[0].Format(time.RFC1123))
	fmt.Println(next[1].Format(time.RFC1123))
	r, _ := client.RunSchedule(ctx, "morning-report") // now, in addition to the plan
	fmt.Println(r.Result, client.PauseSchedule(ctx, "morning-report"), client.ResumeSchedule(ctx, "morning-report"))
	// Output:
	// at 07:30 on Monday to Friday, Europe/Berlin time
	// Mon, 05 Jan 2026 07:30:00 CET
	// Tue, 06 Jan 2026 07:30:00 CET
	// added <nil> <nil>
}

// A handler was broken for a day. The ticks of that day run again.
func ExampleClient_BackfillSchedule() {
	ctx, client := context.Background(), newClient()
	_ = client.PutSchedule(ctx, tusk.Schedule{Name: "import", Spec: "@every 6h", Args: Greet{Name: "data"}})
	day := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	results, err := client.BackfillSchedule(ctx, "import", day, day.AddDate(0, 0, 1))
	fmt.Println(len(results), err)
	last, _ := client.Get(ctx, results[3].ID)
	fmt.Println(last.Schedule, last.Tick)
	// Output:
	// 4 <nil>
	// import 2026-01-02 18:00:00 +0000 UTC
}

// hasty is a store in which another client puts a record just before the first write.
type hasty struct {
	store.Store
	before func()
}

func (h *hasty) PutRecord(ctx context.Context, p store.PutRecord) (int64, []store.Enqueued, error) {
	if before := h.before; before != nil {
		h.before = nil
		before()
	}
	return h.Store.PutRecord(ctx, p)
}

// Whether a caller may change a schedule is decided by the version that would change, not by one that was read before.
func TestAScheduleThatBecameAnothersMeanwhileIsLeftAlone(t *testing.T) {
	ctx := context.Background()
	forbidden := errors.New("forbidden")
	mine := func(s tusk.ScheduleInfo) error {
		if s.Tenant != "mine" {
			return forbidden
		}
		return nil
	}
	day := time.Now().Add(-24 * time.Hour)
	for name, do := range map[string]func(*tusk.Client) error{
		"pause":  func(c *tusk.Client) error { return c.PauseSchedule(ctx, "x", mine) },
		"resume": func(c *tusk.Client) error { return c.ResumeSchedule(ctx, "x", mine) },
		"remove": func(c *tusk.Client) error { return c.RemoveSchedule(ctx, "x", mine) },
		"run":    func(c *tusk.Client) error { _, err := c.RunSchedule(ctx, "x", mine); return err },
		"backfill": func(c *tusk.Client) error {
			_, err := c.BackfillSchedule(ctx, "x", day, day.Add(24*time.Hour), mine)
			return err
		},
	} {
		s := &hasty{Store: memory.New()}
		client := clientOf(t, s)
		put := func(tenant string) error {
			return client.PutSchedule(ctx, tusk.Schedule{Name: "x", Spec: "@daily", Args: count{},
				Options: &tusk.Options{Tenant: tenant}})
		}
		if err := put("mine"); err != nil {
			t.Fatal(err)
		}
		change := func() {
			if err := put("another"); err != nil {
				t.Error(err)
			}
		}
		if name == "run" || name == "backfill" { // they read once, and enqueue from that version
			change()
		} else {
			s.before = change // after the check, before the write
		}
		if err := do(client); !errors.Is(err, forbidden) {
			t.Errorf("%s: %v", name, err)
		}
		info, err := client.Schedule(ctx, "x")
		tasks, listed := client.List(ctx, tusk.Filter{})
		if err := errors.Join(err, listed); err != nil || info.Paused || len(tasks) > 0 {
			t.Errorf("%s: %+v, %d tasks, %v", name, info, len(tasks), err)
		}
	}
}

func TestOfTwoThatPutAScheduleAtOnceTheSecondIsShownTheFirst(t *testing.T) {
	ctx := context.Background()
	s := &hasty{Store: memory.New()}
	client := clientOf(t, s)
	taken := errors.New("taken")
	put := func(tenant string) error {
		return client.PutScheduleIf(ctx, tusk.Schedule{Name: "x", Spec: "@daily", Args: count{},
			Options: &tusk.Options{Tenant: tenant}}, func(old tusk.ScheduleInfo) error {
			if old.Tenant != tenant {
				return taken
			}
			return nil
		})
	}
	s.before = func() {
		if err := put("first"); err != nil {
			t.Error(err)
		}
	}
	if err := put("second"); !errors.Is(err, taken) {
		t.Errorf("the second: %v", err)
	}
	if got, err := client.Schedule(ctx, "x"); err != nil || got.Tenant != "first" {
		t.Errorf("%+v, %v", got, err)
	}
}

// skewed is a store whose clock is ahead of this process's.
type skewed struct {
	store.Store
	ahead time.Duration
}

func (s skewed) Lead(ctx context.Context, c store.Candidate) (store.Leadership, error) {
	l, err := s.Store.Lead(ctx, c)
	l.Now = l.Now.Add(s.ahead)
	return l, err
}
