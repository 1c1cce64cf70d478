package store

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestQuantilesAreWithinAFifth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Int64Range(0, int64(time.Hour)), 1, 200).Draw(t, "durations")
		q := rapid.Float64Range(0.01, 1).Draw(t, "q")
		var d Durations
		for _, v := range values {
			d.Add(time.Duration(v))
		}
		slices.Sort(values)
		exact := time.Duration(values[int(math.Ceil(q*float64(len(values))))-1])
		got := d.Quantile(q)
		if got < exact.Truncate(time.Microsecond) || float64(got) > float64(exact)*1.25+2000 {
			t.Fatalf("quantile %v of %v: got %v, exact %v", q, values, got, exact)
		}
	})
}

func TestBucketsAreInOrderAndCoverAll(t *testing.T) {
	last := -1
	for us := uint64(0); us < 1<<44; us = us*9/8 + 1 {
		x := time.Duration(us) * time.Microsecond
		b := bucketOf(x)
		if b < last || b >= DurationBuckets {
			t.Fatalf("%v is in bucket %d after %d", x, b, last)
		}
		if bucketEdge(b) <= x && b != DurationBuckets-1 {
			t.Fatalf("%v is beyond the edge %v of its bucket %d", x, bucketEdge(b), b)
		}
		last = b
	}
	var d Durations
	d.Add(math.MaxInt64)
	d.Add(-time.Second)
	if d.Quantile(1) != math.MaxInt64 || d.Quantile(0.5) > time.Microsecond {
		t.Error(d.Quantile(1), d.Quantile(0.5))
	}
}

func TestDurationsAddUp(t *testing.T) {
	var a, b, both Durations
	for i := range 100 {
		x := time.Duration(i) * time.Millisecond
		if i%2 == 0 {
			a.Add(x)
		} else {
			b.Add(x)
		}
		both.Add(x)
	}
	a.Merge(&b)
	if a != both || a.Mean() != 49500*time.Microsecond {
		t.Errorf("%v, %v", a.Mean(), both.Mean())
	}
}

// TestTheMeanOfABacklogIsTrue lets more tasks wait for a day than 292 years have days.
func TestTheMeanOfABacklogIsTrue(t *testing.T) {
	const day = 24 * time.Hour
	var all Durations
	for range 2 {
		var some Durations
		for range 100_000 {
			some.Add(day)
		}
		all.Merge(&some)
	}
	if all.Sum < 0 || all.Mean() != day {
		t.Errorf("200,000 tasks waited %v, each %v", all.Sum, all.Mean())
	}
}
