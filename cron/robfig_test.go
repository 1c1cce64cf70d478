package cron_test

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	robfig "github.com/robfig/cron/v3"

	"github.com/tuskqueue/tusk/cron"
)

func TestAgainstRobfigAwayFromTransitions(t *testing.T) {
	const perZone = 150
	var compared atomic.Int64
	t.Run("zones", func(t *testing.T) {
		for i, zone := range append([]string{"UTC", "Asia/Tokyo", "Asia/Kolkata"}, oracleZones...) {
			t.Run(zone, func(t *testing.T) {
				t.Parallel()
				loc, err := time.LoadLocation(zone)
				if err != nil {
					t.Fatal(err)
				}
				all := transitions(loc, 2015, 2030)
				r := rand.New(rand.NewPCG(uint64(i), 3))
				for range perZone {
					e := randomExpression(r)
					if !e.firesSomeday() {
						continue
					}
					theirs, err := robfig.ParseStandard("CRON_TZ=" + zone + " " + e.String())
					if err != nil {
						t.Fatal(err)
					}
					ours := mustParse(t, e.String(), zone)
					start := time.Date(2015, 1, 5, 0, 0, 0, 0, time.UTC).Add(time.Duration(r.IntN(14*365*24*60)) * time.Minute)
					compared.Add(int64(compareWithRobfig(t, ours, theirs, start, all)))
				}
			})
		}
	})
	if n := compared.Load(); n < minTicks && !t.Failed() {
		t.Errorf("compared only %d ticks, want %d", n, minTicks)
	} else {
		t.Logf("compared %d ticks", n)
	}
}

// compareWithRobfig compares ticks until the next transition is near. Around transitions, the two
// differ by design.
func compareWithRobfig(t *testing.T, ours cron.Schedule, theirs robfig.Schedule, start time.Time, all []time.Time) int {
	const near = 2 * 24 * time.Hour
	stop := time.Date(2032, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, transition := range all {
		if start.After(transition.Add(-near)) && start.Before(transition.Add(near)) {
			start = transition.Add(near)
		}
		if transition.After(start) {
			stop = transition.Add(-near)
			break
		}
	}
	tick, compared := start, 0
	for range 120 {
		want := theirs.Next(tick)
		if want.IsZero() || want.After(stop) {
			break // robfig searches only five years
		}
		got := ours.Next(tick)
		if !got.Equal(want) {
			t.Errorf("%s after %v: got %v, want %v", ours, tick, got, want)
			break
		}
		if prev := ours.Prev(got); compared > 0 && !prev.Equal(tick) {
			t.Errorf("%s before %v: got %v, want %v", ours, got, prev, tick)
			break
		}
		tick, compared = got, compared+1
	}
	return compared
}
