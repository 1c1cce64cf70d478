package tend

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tuskqueue/tusk/internal/tick"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

func plan(t *testing.T, s store.Store, name string, of tick.Schedule) {
	t.Helper()
	body, err := json.Marshal(of)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.PutRecord(t.Context(),
		store.PutRecord{Record: store.Record{Kind: tick.RecordKind, Name: name, Body: body}}); err != nil {
		t.Fatal(err)
	}
}

// ticks returns the ticks that a schedule has fired, in order.
func ticks(t *testing.T, s store.Store) (at []time.Time) {
	t.Helper()
	for f := (store.Filter{Limit: store.MaxPage}); ; {
		page, err := s.List(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range page {
			var settings struct{ Tick time.Time }
			if err := json.Unmarshal(task.Settings, &settings); err != nil {
				t.Fatal(err)
			}
			at = append(at, settings.Tick)
		}
		if len(page) < f.Limit {
			slices.SortFunc(at, time.Time.Compare)
			return at
		}
		f.Before = page[len(page)-1].ID
	}
}

// TestSchedulesFireInSets makes many schedules due in the same second, one of which cannot be written.
func TestSchedulesFireInSets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const schedules = 2*fireSet + 10
		inner := memory.New()
		var writes atomic.Int64
		s := &shaky{Store: inner, before: func(method string) error {
			if method == "PutRecord" || method == "UpdateRecords" {
				writes.Add(1)
			}
			return nil
		}}
		for i := range schedules {
			plan(t, inner, fmt.Sprint("s", i), tick.Schedule{Spec: "@every 1h", Kind: "k", Next: time.Now().Add(time.Minute)})
		}
		_, kill := lead(s, 1)
		time.Sleep(59 * time.Second)
		writes.Store(0)
		time.Sleep(2 * time.Second)
		if n := len(ticks(t, inner)); n != schedules {
			t.Errorf("a second after its tick, %d of %d schedules have fired", n, schedules)
		}
		if n := writes.Load(); n > 3 {
			t.Errorf("%d schedules took %d writes", schedules, n)
		}
		kill()
	})
}

func TestAScheduleThatCannotBeWrittenHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memory.New()
		s := &stuck{Store: inner, name: "s3"}
		for i := range 10 {
			plan(t, inner, fmt.Sprint("s", i), tick.Schedule{Spec: "@every 1m", Kind: "k", Overlap: tick.OverlapAllow,
				Next: time.Now().Add(time.Minute)})
		}
		_, kill := lead(s, 1)
		time.Sleep(70 * time.Second)
		if n := len(ticks(t, inner)); n != 9 {
			t.Errorf("beside one that is held, %d of 9 schedules have fired", n)
		}
		time.Sleep(59 * time.Second)
		if n, failed := len(ticks(t, inner)), s.sets.Load(); n != 18 || failed != 1 {
			t.Errorf("after the second tick %d of 18 tasks are there; %d sets failed, want the first alone", n, failed)
		}
		s.free.Store(true)
		time.Sleep(10 * time.Second)
		if n := len(ticks(t, inner)); n != 19 {
			t.Errorf("when nothing is held, %d of 19 tasks are there", n)
		}
		kill()
	})
}

// The failure of one schedule was the failure of the look, after which the next look came up to five seconds later.
func TestAScheduleThatCannotBeReadDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		if _, _, err := s.PutRecord(t.Context(),
			store.PutRecord{Record: store.Record{Kind: tick.RecordKind, Name: "bad", Body: []byte("{")}}); err != nil {
			t.Fatal(err)
		}
		plan(t, s, "seconds", tick.Schedule{Spec: "@every 1s", Kind: "k", Overlap: tick.OverlapAllow,
			Next: time.Now().Add(2 * time.Second)})
		logged := &bytes.Buffer{}
		_, kill := lead(s, 1, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(logged, nil)) })
		time.Sleep(61500 * time.Millisecond)
		kill()
		if n := len(ticks(t, s)); n != 60 {
			t.Errorf("%d of 60 ticks have fired", n)
		}
		if n := strings.Count(logged.String(), "schedule bad"); n < 10 || n > 13 {
			t.Errorf("the failure was logged %d times in a minute", n)
		}
	})
}

// A schedule that lags is due again at once, so a write that was refused at once was repeated as fast as the engine
// could refuse it.
func TestAScheduleThatIsRefusedIsNotTriedWithoutAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &refusing{Store: memory.New()}
		plan(t, s, "late", tick.Schedule{Spec: "@every 1s", Kind: "k", Overlap: tick.OverlapAllow, Missed: tick.MissedAll,
			Next: time.Now().Add(-10 * time.Second)})
		_, kill := lead(s, 1)
		time.Sleep(10 * time.Second)
		kill()
		if n := s.refused.Load(); n < 10 || n > 110 {
			t.Errorf("a write was refused %d times in ten seconds", n)
		}
	})
}

// refusing is a store that accepts no firings.
type refusing struct {
	store.Store
	refused atomic.Int64
}

func (s *refusing) UpdateRecords(context.Context, int64, []store.PutRecord) ([]store.Updated, error) {
	s.refused.Add(1)
	time.Sleep(time.Millisecond)
	return nil, store.ErrUnstorable
}

// TestACatchUpIsWrittenInParts has more missed ticks, with larger args, than a store accepts in the time of a write,
// and another schedule that must not wait for them.
func TestACatchUpIsWrittenInParts(t *testing.T) {
	for _, c := range []struct {
		name   string
		args   int // bytes
		second int // bytes that the store accepts
		within time.Duration
	}{
		{"as large as a set may be", 100 << 10, 10 << 20, 3 * time.Minute},
		{"small", 100, 10 << 20, 10 * time.Second},
		{"larger than the store takes in time", 40 << 10, 100 << 10, time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := memory.New()
				s := &heavy{Store: inner, second: c.second, seen: map[time.Time]int{}}
				args := fmt.Appendf(nil, `"%0*d"`, c.args, 0)
				long := time.Now().Add(-30000 * time.Second).Truncate(10 * time.Second)
				plan(t, inner, "late", tick.Schedule{Spec: "@every 10s", Kind: "k", Args: args, Missed: tick.MissedAll,
					Cap: 1000, Overlap: tick.OverlapAllow, Next: long})
				_, kill := lead(s, 1)
				defer kill()
				begun := time.Now()
				for s.count() < 1000 && time.Since(begun) < c.within {
					time.Sleep(time.Second)
				}
				if n := s.count(); n < 1000 {
					t.Errorf("%d of 1000 missed ticks have fired after %v, %d writes failed", n, c.within,
						s.failed.Load())
				}
				for at, n := range s.seen {
					if n > 1 {
						t.Errorf("tick %v has fired %d times", at, n)
					}
				}
				if failed := s.failed.Load(); c.second > fireBytes && failed > 0 {
					t.Errorf("%d writes failed", failed)
				}
			})
		})
	}
}

// heavy is a store that accepts a limited number of bytes of tasks in a second, and keeps none of them.
type heavy struct {
	store.Store
	second int
	failed atomic.Int64
	mu     sync.Mutex
	seen   map[time.Time]int // how often each tick has fired
}

func (h *heavy) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.seen)
}

func (h *heavy) UpdateRecords(ctx context.Context, term int64, puts []store.PutRecord) ([]store.Updated, error) {
	size := 0
	var fired []time.Time
	bare := slices.Clone(puts)
	for i := range bare {
		for _, task := range bare[i].Tasks {
			size += len(task.Args)
			var settings struct{ Tick time.Time }
			if err := json.Unmarshal(task.Settings, &settings); err != nil {
				return nil, err
			}
			fired = append(fired, settings.Tick)
		}
		bare[i].Tasks = nil
	}
	select {
	case <-ctx.Done():
		h.failed.Add(1)
		return nil, ctx.Err()
	case <-time.After(time.Duration(size) * time.Second / time.Duration(h.second)):
	}
	updated, err := h.Store.UpdateRecords(ctx, term, bare)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, at := range fired {
		if err == nil && updated[0].Version != 0 {
			h.seen[at]++
		}
	}
	return updated, err
}

// stuck is a store in which somebody holds the key of a schedule.
type stuck struct {
	store.Store
	name string
	sets atomic.Int64 // sets that were held up
	free atomic.Bool
}

func (s *stuck) UpdateRecords(ctx context.Context, term int64, puts []store.PutRecord) ([]store.Updated, error) {
	held := slices.ContainsFunc(puts, func(p store.PutRecord) bool { return p.Record.Name == s.name })
	if held && !s.free.Load() {
		if len(puts) > 1 {
			s.sets.Add(1)
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Store.UpdateRecords(ctx, term, puts)
}

// crowded is a store that records how many tasks came in each write of schedules, and in which write those of one
// schedule first came.
type crowded struct {
	store.Store
	mu     sync.Mutex
	name   string
	writes []int
	first  int // the write with the named schedule; 0 if none yet
}

func (c *crowded) UpdateRecords(ctx context.Context, term int64, puts []store.PutRecord) ([]store.Updated, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	tasks := 0
	for _, p := range puts {
		if tasks += len(p.Tasks); p.Record.Name == c.name && len(p.Tasks) > 0 && c.first == 0 {
			c.first = len(c.writes) + 1
		}
	}
	if tasks > 0 {
		c.writes = append(c.writes, tasks)
	}
	return c.Store.UpdateRecords(ctx, term, puts)
}

// Twenty schedules that had each missed 400 ticks were one write of 8,000 tasks, which came before the schedule that
// had missed none.
func TestWhatManySchedulesMissedIsNoLargerWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const late, missed = 20, 400
		s := &crowded{Store: memory.New(), name: "punctual"}
		for i := range late {
			plan(t, s, fmt.Sprint("late", i), tick.Schedule{Spec: "@every 1m", Kind: "k", Missed: tick.MissedAll,
				Cap: missed, Overlap: tick.OverlapAllow, Next: time.Now().Add((1 - missed) * time.Minute)})
		}
		plan(t, s, s.name, tick.Schedule{Spec: "@every 1h", Kind: "k", Next: time.Now()})
		_, kill := lead(s, 1)
		time.Sleep(30 * time.Second)
		kill()
		if n := len(ticks(t, s)); n != late*missed+1 {
			t.Errorf("%d ticks have fired, want %d", n, late*missed+1)
		}
		if most := slices.Max(s.writes); most > fireSet {
			t.Errorf("a write had %d tasks", most)
		}
		if s.first != 1 {
			t.Errorf("what was due came in write %d", s.first)
		}
	})
}

// A look that has no time for all schedules leaves the others to the next ones, each in its turn.
func TestALookThatTakesLongGoesOnInTheNextOne(t *testing.T) {
	defer func(before time.Duration) { dueWithin = before }(dueWithin)
	dueWithin = 0
	s := memory.New()
	for i := range 3 {
		plan(t, s, fmt.Sprint("s", i), tick.Schedule{Spec: "@every 1h", Kind: "k", Next: time.Now().Add(-30 * time.Minute)})
	}
	l := candidate(s, 1)
	records, err := s.Records(t.Context(), store.RecordFilter{Kind: tick.RecordKind})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for range 6 { // none of them is written
		due, next, err := l.due(records, nil)
		if err != nil || len(due) != 1 || next.After(time.Now()) {
			t.Fatalf("%+v, the next look is at %v: %v", due, next, err)
		}
		seen[due[0].put.Record.Name]++
	}
	if len(seen) != 3 || seen["s0"] != 2 || seen["s1"] != 2 {
		t.Errorf("in six looks: %v", seen)
	}
	dueWithin = time.Hour
	if due, _, _ := l.due(records, nil); len(due) != 3 || l.plans.first != "" {
		t.Errorf("with time: %+v, %q", due, l.plans.first)
	}
}
