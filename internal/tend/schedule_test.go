package tend

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
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

// TestSchedulesFireInSets lets many schedules be due in the same second, one of which
// cannot be written.
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

// stuck is a store in which somebody holds the key of a schedule.
type stuck struct {
	store.Store
	name string
	sets atomic.Int64 // that were held up
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
