package cron_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/cron"
)

// The oracles know a random expression by the sets from which its text was made, never by the text.
// So they share no parsing with the package.

type column struct {
	text      string
	set       [60]bool
	any, wild bool
}

type expression struct{ minute, hour, dom, month, dow column }

func (e *expression) String() string {
	return strings.Join([]string{e.minute.text, e.hour.text, e.dom.text, e.month.text, e.dow.text}, " ")
}

// reading is what a clock on the wall shows.
type reading struct{ month, day, weekday, hour, minute int }

// read returns what the clock shows in a minute, which is numbered like the minute of UTC that reads the same.
func read(minute int64) reading {
	t := time.Unix(minute*60, 0).UTC()
	return reading{int(t.Month()), t.Day(), int(t.Weekday()), t.Hour(), t.Minute()}
}

func (e *expression) matches(r reading) bool {
	if !e.minute.set[r.minute] || !e.hour.set[r.hour] || !e.month.set[r.month] {
		return false
	}
	if e.dom.any || e.dow.any {
		return e.dom.set[r.day] && e.dow.set[r.weekday]
	}
	return e.dom.set[r.day] || e.dow.set[r.weekday]
}

func randomExpression(r *rand.Rand) *expression {
	return &expression{
		minute: randomColumn(r, 0, 59, 3),
		hour:   randomColumn(r, 0, 23, 3),
		dom:    randomColumn(r, 1, 31, 6),
		month:  randomColumn(r, 1, 12, 8),
		dow:    randomColumn(r, 0, 6, 6),
	}
}

// randomColumn returns a wildcard with a probability of stars / (stars+3).
func randomColumn(r *rand.Rand, low, high, stars int) column {
	var c column
	if r.IntN(stars+3) < stars {
		c.add(low, high, 1)
		c.text, c.any, c.wild = "*", true, true
		return c
	}
	var items []string
	for range 1 + r.IntN(3) {
		a := low + r.IntN(high-low+1)
		b := a + r.IntN(high-a+1)
		step := 2 + r.IntN(high-low)
		switch r.IntN(5) {
		case 0, 1:
			c.add(a, a, 1)
			items = append(items, fmt.Sprint(a))
		case 2:
			c.add(a, b, 1)
			items = append(items, fmt.Sprintf("%d-%d", a, b))
		case 3:
			c.add(a, b, step)
			c.wild = true
			items = append(items, fmt.Sprintf("%d-%d/%d", a, b, step))
		case 4:
			c.add(low, high, step)
			c.wild = true
			items = append(items, fmt.Sprintf("*/%d", step))
		}
	}
	c.text = strings.Join(items, ",")
	return c
}

func (c *column) add(low, high, step int) {
	for value := low; value <= high; value += step {
		c.set[value] = true
	}
}

func (e *expression) firesSomeday() bool {
	for day := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC); day.Year() == 2024; day = day.AddDate(0, 0, 1) {
		for weekday := range 7 { // over the years, a date falls on every weekday
			if e.month.set[day.Month()] && (e.dom.any || e.dow.any) && e.dom.set[day.Day()] && e.dow.set[weekday] ||
				e.month.set[day.Month()] && !e.dom.any && !e.dow.any && (e.dom.set[day.Day()] || e.dow.set[weekday]) {
				return true
			}
		}
	}
	return false
}

var oracleZones = []string{
	"America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "America/Sao_Paulo",
	"Pacific/Apia", "Africa/Casablanca", "Antarctica/Troll", "Europe/Dublin",
	"America/Havana", "Asia/Tehran", "Africa/Cairo", "Asia/Pyongyang",
	"America/Caracas", "Asia/Gaza", "Pacific/Chatham", "America/St_Johns",
}

// minTicks is the minimum number of ticks that each oracle has to compare.
const minTicks = 250_000

func TestAgainstBruteForceOnTransitions(t *testing.T) {
	var compared atomic.Int64
	t.Run("zones", func(t *testing.T) {
		for i, zone := range oracleZones {
			t.Run(zone, func(t *testing.T) {
				t.Parallel()
				loc, err := time.LoadLocation(zone)
				if err != nil {
					t.Fatal(err)
				}
				r := rand.New(rand.NewPCG(uint64(i), 2026))
				for _, transition := range transitions(loc, 1996, 2030) {
					compared.Add(int64(compareAround(t, loc, transition, r)))
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

// transitions lists the first minute of each new offset.
func transitions(loc *time.Location, firstYear, lastYear int) (list []time.Time) {
	offset := func(t time.Time) int { _, seconds := t.In(loc).Zone(); return seconds }
	end := time.Date(lastYear, 12, 31, 0, 0, 0, 0, time.UTC)
	for day := time.Date(firstYear, 1, 1, 0, 0, 0, 0, time.UTC); day.Before(end); day = day.Add(24 * time.Hour) {
		if offset(day) == offset(day.Add(24*time.Hour)) {
			continue
		}
		for minute := day; ; minute = minute.Add(time.Minute) {
			if offset(minute) != offset(minute.Add(time.Minute)) {
				list = append(list, minute.Add(time.Minute))
				break
			}
		}
	}
	return list
}

// compareAround walks the minutes around a transition, applies the documented rules to some random
// expressions, and compares Next and Prev with the result. It returns the number of ticks compared.
func compareAround(t *testing.T, loc *time.Location, transition time.Time, r *rand.Rand) (compared int) {
	begin, end := transition.Add(-20*time.Hour), transition.Add(20*time.Hour)
	exprs := make([]*expression, 6)
	for i := range exprs {
		for exprs[i] == nil || !exprs[i].firesSomeday() {
			exprs[i] = randomExpression(r)
		}
	}
	ticks := make([][]time.Time, len(exprs))

	seen := map[int64]bool{} // by the clock on the wall
	last := int64(math.MaxInt64)
	for instant := begin.Add(-30 * time.Hour); instant.Before(end); instant = instant.Add(time.Minute) {
		_, offset := instant.In(loc).Zone()
		wall := (instant.Unix() + int64(offset)) / 60
		repeated := seen[wall]
		seen[wall] = true
		var skipped []reading
		for minute := last + 1; last < wall && minute < wall; minute++ {
			if !seen[minute] {
				skipped = append(skipped, read(minute))
			}
		}
		last = wall
		if instant.Before(begin) {
			continue
		}
		now := read(wall)
		for i, e := range exprs {
			fires := e.matches(now)
			if !e.hour.wild {
				fires = fires && !repeated
				for _, minute := range skipped {
					fires = fires || e.matches(minute)
				}
			}
			if fires {
				ticks[i] = append(ticks[i], instant)
			}
		}
	}

	for i, e := range exprs {
		s := mustParse(t, e.String(), loc.String())
		compared += compareTicks(t, s, ticks[i], begin, end)
		// Above, each tick led to the next one. Also ask from other instants, above all from the
		// second pass of a repeated hour.
		for minute := -100; minute <= 100; minute += 1 + r.IntN(15) {
			compareAt(t, s, ticks[i], transition.Add(time.Duration(minute)*time.Minute), end)
		}
	}
	return compared
}

// compareTicks compares a schedule with all its ticks in [begin, end).
func compareTicks(t *testing.T, s cron.Schedule, want []time.Time, begin, end time.Time) int {
	t.Helper()
	tick := begin.Add(-1)
	for i, next := range want {
		if tick = s.Next(tick); !tick.Equal(next) {
			t.Errorf("%s: tick %d after %v: got %v, want %v", s, i, begin, tick, next)
			return i
		}
		if i > 0 {
			if got := s.Prev(tick); !got.Equal(want[i-1]) {
				t.Errorf("%s: before %v: got %v, want %v", s, tick, got, want[i-1])
				return i
			}
		}
	}
	if extra := s.Next(tick); !extra.IsZero() && extra.Before(end) {
		t.Errorf("%s: extra tick %v", s, extra)
	}
	if len(want) > 0 {
		if first := s.Prev(want[0]); !first.IsZero() && !first.Before(begin) {
			t.Errorf("%s: extra tick %v before %v", s, first, want[0])
		}
		if got := s.Prev(end); !got.Equal(want[len(want)-1]) {
			t.Errorf("%s: before %v: got %v, want %v", s, end, got, want[len(want)-1])
		}
	}
	return len(want)
}

// compareAt compares the ticks on either side of one instant.
func compareAt(t *testing.T, s cron.Schedule, ticks []time.Time, instant, end time.Time) {
	t.Helper()
	after := sort.Search(len(ticks), func(i int) bool { return ticks[i].After(instant) })
	before := sort.Search(len(ticks), func(i int) bool { return !ticks[i].Before(instant) }) - 1
	next, prev := s.Next(instant), s.Prev(instant)
	if after < len(ticks) && !next.Equal(ticks[after]) || after == len(ticks) && !next.IsZero() && next.Before(end) {
		t.Errorf("%s after %v: got %v", s, instant, next)
	}
	if before >= 0 && !prev.Equal(ticks[before]) {
		t.Errorf("%s before %v: got %v, want %v", s, instant, prev, ticks[before])
	}
}
