package cron

import (
	"math"
	"time"
)

// Schedule is a parsed expression. It is an immutable value, safe to copy and to
// share between goroutines. The zero Schedule has no ticks.
type Schedule struct {
	text   string // the expression without its zone, words separated by one space
	zone   string
	loc    *time.Location
	fields fields
	period int64 // seconds; zero unless the expression is an @every
	start  int64 // no tick is earlier, and periods count from it; zero if not set
}

// Ticks exist only from year 1 to the last day of year 9999, which keeps every
// tick printable and storable in any zone.
var (
	minTick = time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC).Unix()
	maxTick = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC).Unix()
)

// From returns the schedule without ticks before the given instant. The ticks of a period (@every)
// count from that instant, rounded up to a whole second, which is the first of them.
func (s Schedule) From(start time.Time) Schedule {
	s.start = ceilSecond(start)
	return s
}

func ceilSecond(t time.Time) int64 {
	if t.Nanosecond() > 0 {
		return t.Unix() + 1
	}
	return t.Unix()
}

// Next returns the first tick strictly after the given instant, in the zone of the schedule. It
// returns the zero time if there is none up to year 9999.
func (s Schedule) Next(after time.Time) time.Time {
	if s.loc == nil || after.Year() > 9999 {
		return time.Time{}
	}
	from := minTick // ticks are whole seconds
	if after.Year() >= 1 {
		from = max(from, after.Unix()+1)
	}
	if s.start != 0 {
		from = max(from, s.start)
	}
	var tick int64
	ok := true
	switch {
	case s.period > 0:
		tick = s.start + ceilDiv(from-s.start, s.period)*s.period
	case s.fields.elapsed:
		tick, ok = s.nextElapsed(from)
	default:
		tick, ok = s.nextFixed(from)
	}
	return s.at(tick, ok)
}

// Prev returns the last tick strictly before the given instant, in the zone of the schedule. It
// returns the zero time if there is none since year 1.
func (s Schedule) Prev(before time.Time) time.Time {
	if s.loc == nil || before.Year() < 1 {
		return time.Time{}
	}
	to := maxTick
	if before.Year() <= 9999 {
		to = min(ceilSecond(before)-1, maxTick)
	}
	var tick int64
	ok := true
	switch {
	case s.period > 0:
		tick = s.start + floorDiv(to-s.start, s.period)*s.period
	case s.fields.elapsed:
		tick, ok = s.prevElapsed(to)
	default:
		tick, ok = s.prevFixed(to)
	}
	return s.at(tick, ok && (s.start == 0 || tick >= s.start))
}

// String returns the expression with its zone spelled out, so that it parses to the same ticks
// whatever the default zone is.
func (s Schedule) String() string {
	if s.loc == nil {
		return ""
	}
	return "CRON_TZ=" + s.zone + " " + s.text
}

func (s Schedule) at(tick int64, ok bool) time.Time {
	if !ok || tick < minTick || tick > maxTick {
		return time.Time{}
	}
	return time.Unix(tick, 0).In(s.loc)
}

// Fixed hours rest on one observation: the tick of a wall clock minute is the first instant at
// which the wall clock has reached that minute. That is the minute itself on an ordinary day, its
// first occurrence if the clock repeats it, and the end of the gap if the clock jumps over it. What
// the clock has reached never goes back, so the ticks have the same order as their wall clock
// minutes.

func (s Schedule) nextFixed(from int64) (int64, bool) {
	wall, ok := s.fields.next(reached(s.loc, from-1) + 1)
	return firstReach(s.loc, wall), ok
}

func (s Schedule) prevFixed(to int64) (int64, bool) {
	wall, ok := s.fields.prev(reached(s.loc, to))
	return firstReach(s.loc, wall), ok
}

// nextElapsed and prevElapsed search the runs of constant offset one by one. Within a run, the
// difference between wall clock and elapsed time is constant.

func (s Schedule) nextElapsed(from int64) (int64, bool) {
	for limit := from + searchSeconds; from < limit; {
		offset, end := run(s.loc, from)
		wall, ok := s.fields.next(from + offset)
		if !ok {
			return 0, false
		}
		if tick := wall - offset; tick < end {
			return tick, true
		}
		from = end
	}
	return 0, false
}

func (s Schedule) prevElapsed(to int64) (int64, bool) {
	// Runs are only known forwards. So step back by a window, and walk each window from its start.
	const window = 60 * 24 * 3600
	for limit := to - searchSeconds; to > limit; to -= window {
		var tick int64
		found := false
		for pos := to - window + 1; pos <= to; {
			offset, end := run(s.loc, pos)
			end = min(end, to+1)
			wall, ok := s.fields.prev(end - 1 + offset)
			if !ok {
				return 0, false
			}
			if wall-offset >= pos {
				tick, found = wall-offset, true
			}
			pos = end
		}
		if found {
			return tick, true
		}
	}
	return 0, false
}

// maxOffset exceeds every distance between a wall clock and UTC.
const maxOffset = 26 * 3600

// reached returns the furthest wall clock second shown at or before an instant.
func reached(loc *time.Location, instant int64) int64 {
	// What the clock showed more than two offsets ago has been passed since.
	furthest := int64(math.MinInt64)
	for pos := instant - 2*maxOffset; ; {
		offset, end := run(loc, pos)
		furthest = max(furthest, min(end-1, instant)+offset)
		if end > instant {
			return furthest
		}
		pos = end
	}
}

// firstReach returns the first instant at which the wall clock shows the given
// second or a later one.
func firstReach(loc *time.Location, wall int64) int64 {
	for pos := wall - maxOffset; ; {
		offset, end := run(loc, pos)
		if end-1+offset >= wall {
			return max(pos, wall-offset)
		}
		pos = end
	}
}

// run returns the offset at an instant, and an instant until which it certainly stays the same.
func run(loc *time.Location, instant int64) (offset, end int64) {
	t := time.Unix(instant, 0).In(loc)
	_, seconds := t.Zone()
	_, bound := t.ZoneBounds()
	if bound.IsZero() {
		return int64(seconds), math.MaxInt64 / 2
	}
	end = bound.Unix()
	if end <= instant {
		// In years for which a zone continues by rule, package time ends the last run of a year
		// after 365 days. On the last day of a leap year, that is already past.
		end = (floorDiv(instant, secondsPerDay) + 1) * secondsPerDay
	}
	return int64(seconds), end
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func ceilDiv(a, b int64) int64 { return -floorDiv(-a, b) }
