package why_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/tick"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
	"github.com/tuskqueue/tusk/why"
)

// plan stores the schedule s for the bench's queue. leave then changes the stored schedule as a
// leader might have, by the database's clock.
func (b *bench) plan(s tusk.Schedule, leave func(s *tick.Schedule, now time.Time)) {
	b.Helper()
	s.Name, s.Args, s.Options = "s", tusk.RawArgs{Name: "k"}, &tusk.Options{Queue: b.queue, Tenant: "acme"}
	if s.Spec == "" {
		s.Spec = "@every 1h"
	}
	b.must(b.PutSchedule(b.Context(), s))
	if leave == nil {
		return
	}
	records, err := b.Store().Records(b.Context(), store.RecordFilter{Kind: tick.RecordKind})
	b.must(err)
	e, _ := store.As[store.Examiner](b.Store())
	h, err := e.Examine(b.Context())
	b.must(err)
	var stored tick.Schedule
	b.must(json.Unmarshal(records[0].Body, &stored))
	leave(&stored, h.Now)
	records[0].Body, err = json.Marshal(stored)
	b.must(err)
	_, _, err = b.Store().PutRecord(b.Context(), store.PutRecord{Record: records[0]})
	b.must(err)
}

// fired enqueues the task of a tick, as the leader does.
func (b *bench) fired(overlap tusk.OverlapPolicy) tusk.ID {
	b.Helper()
	s := tick.Schedule{Kind: "k", Queue: b.queue, Tenant: "acme", Args: []byte("{}"), Overlap: overlap}
	t, err := s.Task("s", time.Now(), tusk.NewID())
	b.must(err)
	_, err = b.Store().Enqueue(b.Context(), []store.NewTask{t})
	b.must(err)
	return t.ID
}

var scheduleReasons = []struct {
	code  why.Code
	parts []string
	make  func(b *bench)
}{
	{why.SchedulePaused, []string{"not made up for", "tusk schedules resume s"}, func(b *bench) {
		b.lead()
		b.plan(tusk.Schedule{}, nil)
		b.must(b.PauseSchedule(b.Context(), "s"))
	}},
	{why.NoLeader, []string{"no schedule fires", "tusk serve"}, func(b *bench) { b.plan(tusk.Schedule{}, nil) }},
	{why.Invalid, []string{"0 0 31 2 *", "never fires", "tusk schedules add s SPEC k"}, func(b *bench) {
		b.plan(tusk.Schedule{}, func(s *tick.Schedule, _ time.Time) { s.Spec = "0 0 31 2 *" })
	}},
	{why.Invalid, []string{"Nowhere", "tusk schedules add s SPEC k"}, func(b *bench) {
		b.plan(tusk.Schedule{}, func(s *tick.Schedule, _ time.Time) { s.Zone = "Europe/Nowhere" })
	}},
	{why.Overlap, []string{"available", "are skipped", "tusk tasks why "}, func(b *bench) {
		b.lead()
		b.plan(tusk.Schedule{}, nil)
		b.fired(tusk.OverlapSkip)
	}},
	{why.Overlap, []string{"running", "the latest runs then", "tusk tasks why "}, func(b *bench) {
		b.lead()
		b.plan(tusk.Schedule{Overlap: tusk.OverlapBuffer}, nil)
		b.fired(tusk.OverlapBuffer)
		b.claim(b.worker())
		b.fired(tusk.OverlapBuffer)
	}},
	{why.Unplanned, []string{"its first tick"}, func(b *bench) {
		b.lead()
		b.plan(tusk.Schedule{Overlap: tusk.OverlapAllow}, nil)
		b.fired(tusk.OverlapAllow) // holds nothing up
	}},
	{why.Due, []string{"in a moment"}, func(b *bench) {
		b.lead()
		b.plan(tusk.Schedule{}, func(s *tick.Schedule, now time.Time) { s.Next = now })
	}},
	{why.Late, []string{"1h", "late", "tusk doctor"}, func(b *bench) {
		b.lead()
		b.plan(tusk.Schedule{}, func(s *tick.Schedule, now time.Time) { s.Next = now.Add(-hour) })
	}},
	{why.Start, []string{"first run", ", in ", "tusk schedules run s"}, func(b *bench) {
		b.lead()
		b.plan(tusk.Schedule{Start: time.Now().Add(48 * hour)}, nil)
	}},
	{why.Clock, []string{"takes it back"}, func(b *bench) { // ahead by 10 hours
		b.lead()
		b.plan(tusk.Schedule{}, func(s *tick.Schedule, now time.Time) { s.Next = now.Add(10 * hour) })
	}},
	{why.Clock, []string{"counts as fired", "tusk schedules run s"}, func(b *bench) { // ahead by less than a tick
		b.lead()
		b.plan(tusk.Schedule{Spec: "@every 100h", Start: time.Now().Add(-hour)}, func(s *tick.Schedule, now time.Time) {
			plan, err := s.Parse()
			b.must(err)
			s.Next = plan.Next(plan.Next(now))
		})
	}},
	{why.NotDue, []string{"next tick", "none was fired before", "tusk schedules run s"}, func(b *bench) {
		b.lead()
		b.plan(tusk.Schedule{Spec: "@every 100h", Start: time.Now().Add(-hour)}, func(s *tick.Schedule, now time.Time) {
			plan, err := s.Parse()
			b.must(err)
			s.Next = plan.Next(now)
		})
	}},
}

func TestEachReasonOfAScheduleIsNamedFirstOnEachEngine(t *testing.T) {
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			for _, reason := range scheduleReasons {
				t.Run(string(reason.code), func(t *testing.T) {
					client, err := tusk.NewClient(open(t), &tusk.ClientConfig{Logger: slog.New(slog.DiscardHandler)})
					if err != nil {
						t.Fatal(err)
					}
					b := &bench{T: t, Client: client, queue: "q"}
					reason.make(b)
					_, told, err := why.Schedule(t.Context(), client, "s")
					b.must(err)
					b.named(told, reason.code, reason.parts)
				})
			}
		})
	}
}

func TestAScheduleTellsOfItsTaskAndOfItsQueue(t *testing.T) {
	client, err := tusk.NewClient(memory.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, Client: client, queue: "q"}
	b.plan(tusk.Schedule{}, nil)
	b.must(b.PauseSchedule(t.Context(), "s"))
	b.must(b.PauseQueue(t.Context(), "q"))
	id := b.fired(tusk.OverlapSkip)
	_, told, err := why.Schedule(t.Context(), client, "s")
	b.must(err)
	var codes []why.Code
	for _, r := range told {
		codes = append(codes, r.Code)
	}
	want := []why.Code{why.SchedulePaused, why.NoLeader, why.Overlap, why.Paused, why.NoWorker}
	if !slices.Equal(codes, want) {
		t.Fatalf("%v, want %v", codes, want)
	}
	if !slices.Equal(told[2].Tasks, []tusk.ID{id}) {
		t.Errorf("it names %v, want %v", told[2].Tasks, id)
	}
	if _, _, err := why.Schedule(t.Context(), client, "none"); !errors.Is(err, tusk.ErrNotFound) {
		t.Error(err)
	}
}
