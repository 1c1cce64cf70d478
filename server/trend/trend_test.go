package trend

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

func TestFailuresLieWhereTheyHappened(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 3, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	g := store.ErrorGroup{Fingerprint: "f", Queue: "q", Kind: "k", Count: 30, First: ago(3 * time.Hour),
		Last: ago(time.Minute)}
	notes := []note{
		{ago(2 * time.Hour), map[string]int64{"f q k": 5, "f q other": 99}},
		{ago(110 * time.Minute), map[string]int64{}},
		{ago(100 * time.Minute), map[string]int64{"f q k": 12}},
	}
	sum := func(slots []int64) (n int64) {
		for _, c := range slots {
			n += c
		}
		return n
	}
	slots := spread(&g, notes, now)
	if len(slots) != Slots || slots[Slots-1] != 18 || sum(slots) != 30 {
		t.Error(slots)
	}
	if slots[Slots-1-10] != 0 || slots[Slots-1-11]+slots[Slots-1-10]+slots[Slots-1-12] == 0 {
		t.Error(slots)
	}
	g.First = ago(30 * 24 * time.Hour) // what happened before the first note is unknown
	if got := sum(spread(&g, notes, now)); got != 25 {
		t.Error(got)
	}
	if got := sum(spread(&g, nil, now)); got != 1 {
		t.Error(got)
	}
	g.First = ago(time.Hour) // the group is as old as the window
	if got := spread(&g, nil, now); sum(got) != 30 || got[Slots-1] != 30 {
		t.Error(got)
	}
	g.Last = ago(24 * time.Hour)
	g.First = g.Last
	if got := sum(spread(&g, nil, now)); got != 0 {
		t.Error(got)
	}
}

func TestNotesAreWrittenOnceAndForgotten(t *testing.T) {
	client, err := tusk.NewClient(memory.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	a, b := New(client, slog.New(slog.DiscardHandler)), New(client, slog.New(slog.DiscardHandler))
	now := time.Now()
	count := func() int {
		records, err := client.Store().Records(t.Context(), store.RecordFilter{Kind: recordKind})
		if err != nil {
			t.Fatal(err)
		}
		return len(records)
	}
	for i := range Slots + 20 {
		for _, of := range []*Trend{a, b, a} {
			if err := of.Note(context.Background(), now.Add(time.Duration(i)*Slot)); err != nil {
				t.Fatal(err)
			}
		}
		if i == 3 && count() != 4 {
			t.Errorf("%d notes after 4 slots", count())
		}
	}
	if n := count(); n > Slots+3 {
		t.Errorf("%d notes are kept", n)
	}
}
