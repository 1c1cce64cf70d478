package allot

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// tidy removes the usages that no longer matter.
func tidy(rates Rates, l *Limits, now time.Time) {
	b, _ := OpenBook("q", nil)
	b.Usage = rates
	b.Write(slices.Collect(maps.Keys(rates)), l, now)
}

// shelf holds the records of a book.
type shelf struct {
	t       *testing.T
	records map[string]store.Record
	largest int
}

func (s *shelf) write(b *Book, names []string, l *Limits, now time.Time) {
	s.t.Helper()
	put, gone, err := b.Write(names, l, now)
	if err != nil || s.records[put.Name].Version != put.Version {
		s.t.Fatalf("%s has the version %d, want %d; %v", put.Name, s.records[put.Name].Version, put.Version, err)
	}
	put.Version++
	s.records[put.Name], s.largest = put, max(s.largest, len(put.Body))
	b.Written(put.Version)
	if gone != nil {
		if s.records[gone.Name].Version != gone.Version {
			s.t.Fatalf("%s is to be deleted", gone.Name)
		}
		delete(s.records, gone.Name)
	}
}

func (s *shelf) open() *Book {
	s.t.Helper()
	b, err := OpenBook("q", append(slices.Collect(maps.Values(s.records)), store.Record{Name: "q2"}))
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

// The usage of all partitions was one record, which each round wrote as a whole.
func TestTheUsageOfManyPartitionsIsWrittenInParts(t *testing.T) {
	const partitions, round = 20_000, 500
	l := &Limits{Rate: &Rate{Allowed: 10 * partitions, Period: time.Hour},
		PartitionRate: &Rate{Allowed: 2, Period: 24 * time.Hour, Algorithm: SlidingWindow}}
	s, now := &shelf{t: t, records: map[string]store.Record{}}, epoch
	b := s.open()
	start := func(b *Book, from int) {
		w := Waiting{Limits: *l, Room: round, Heads: 2}
		for i := range round {
			w.Groups = append(w.Groups, store.Turns{Tenant: "a", Partition: fmt.Sprint(from + i),
				Waiting: []store.ID{{byte(i >> 8), byte(i)}}})
		}
		ids, _ := Pick(w, &Shares{}, b.Usage, now)
		if len(ids) != round {
			t.Fatalf("%d tasks of partitions from %d start", len(ids), from)
		}
		s.write(b, w.Names(ids), l, now)
	}
	for from := 0; from < partitions; from += round {
		start(b, from)
		now = now.Add(time.Millisecond)
	}
	if n := len(b.Usage); n != partitions+1 || s.largest > 200<<10 {
		t.Errorf("%d usages are known; the largest record has %d bytes", n, s.largest)
	}
	again := s.open()
	for name, u := range b.Usage {
		if got := again.Usage[name]; got == nil || got.Used != u.Used || !got.At.Equal(u.At) {
			t.Fatalf("%q is stored as %+v, want %+v", name, got, u)
		}
	}
	for from := 0; from < partitions; from += round { // some again, with the last of their starts
		if start(again, from); from%(10*round) == 0 {
			again = s.open()
		}
	}
	if again.Usage["a/7"].Used != 2 || again.Usage[""].Used < 1.99*partitions || len(s.records) > partitions/pageSize*2 {
		t.Errorf("%+v, %+v, %d records", again.Usage["a/7"], again.Usage[""], len(s.records))
	}
	now = now.Add(48 * time.Hour)
	for range len(s.records) {
		start(again, 0)
		again.Usage = maps.Clone(again.Usage)
		for i := range round { // as if their window were over
			again.Usage["a/"+fmt.Sprint(i)].Used = 0
		}
	}
	if len(s.records) > 2 || len(again.Usage) > round+1 {
		t.Errorf("when all windows are over, %d usages are left in %d records", len(again.Usage), len(s.records))
	}
}
