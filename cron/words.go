package cron

import (
	"fmt"
	"math/bits"
	"strings"
	"time"
)

// Words describes the schedule in English: "at 02:30 on Monday to Friday".
func (s Schedule) Words() string {
	switch {
	case s.loc == nil:
		return "never"
	case s.period > 0:
		return "every " + periodWords(s.period)
	}
	words := s.fields.clockWords() + s.fields.dayWords()
	if s.zone != "UTC" {
		words += ", " + s.zone + " time"
	}
	return words
}

const (
	allMinutes = 1<<60 - 1
	allHours   = 1<<24 - 1
	allMonths  = 1<<13 - 2
)

func (f *fields) clockWords() string {
	minutes, hours := bits.OnesCount64(f.minute), bits.OnesCount64(f.hour)
	first := lowest(f.minute)
	switch {
	case f.hour == allHours && f.minute == 1:
		return "every hour"
	case f.hour == allHours && minutes == 1:
		return fmt.Sprintf("at minute %d of every hour", first)
	case f.hour == allHours && isCycle(f.minute, 60):
		return f.minuteWords()
	case f.hour == allHours:
		return f.minuteWords() + " of every hour"
	case minutes*hours <= 4:
		var times []string
		for _, hour := range values(f.hour) {
			for _, minute := range values(f.minute) {
				times = append(times, clockTime(hour, minute))
			}
		}
		return "at " + join(times)
	case minutes == 1 && isCycle(f.hour, 24):
		words := fmt.Sprintf("every %d hours", 24/hours)
		if first > 0 {
			words += fmt.Sprintf(" at minute %d", first)
		}
		return words
	case minutes == 1 && len(ranges(f.hour)) == 1:
		return fmt.Sprintf("every hour from %s to %s", clockTime(lowest(f.hour), first), clockTime(highest(f.hour), first))
	}
	return fmt.Sprintf("%s of %s", f.minuteWords(), counted("hour", f.hour))
}

func (f *fields) minuteWords() string {
	switch {
	case f.minute == allMinutes:
		return "every minute"
	case isCycle(f.minute, 60) && f.minute != 1:
		return fmt.Sprintf("every %d minutes", 60/bits.OnesCount64(f.minute))
	}
	return "at " + counted("minute", f.minute)
}

func (f *fields) dayWords() string {
	var days []string
	if !f.domAny {
		days = append(days, " on "+counted("day", f.dom)+" of the month")
	}
	if !f.dowAny {
		// The week begins on Monday here: Sunday moves to the end.
		week := f.dow&^1 | f.dow&1<<7
		days = append(days, " on "+list(week, func(day int) string { return time.Weekday(day % 7).String() }))
	}
	words := strings.Join(days, " or")
	// A time of day alone would leave open on which days.
	if words == "" && f.hour != allHours && bits.OnesCount64(f.minute)*bits.OnesCount64(f.hour) <= 4 {
		words = " every day"
	}
	if f.month != allMonths {
		words += " in " + list(f.month, func(month int) string { return time.Month(month).String() })
	}
	return words
}

func periodWords(seconds int64) string {
	var parts []string
	for _, unit := range []struct {
		name    string
		seconds int64
	}{{"day", 24 * 3600}, {"hour", 3600}, {"minute", 60}, {"second", 1}} {
		n := seconds / unit.seconds
		seconds %= unit.seconds
		switch {
		case n == 1 && seconds == 0 && parts == nil:
			return unit.name
		case n == 1:
			parts = append(parts, "1 "+unit.name)
		case n > 1:
			parts = append(parts, fmt.Sprintf("%d %ss", n, unit.name))
		}
	}
	return strings.Join(parts, " ")
}

func clockTime(hour, minute int) string { return fmt.Sprintf("%02d:%02d", hour, minute) }

// counted returns "day 1" or "days 1 to 7 and 15".
func counted(noun string, mask uint64) string {
	if bits.OnesCount64(mask) > 1 {
		noun += "s"
	}
	return noun + " " + list(mask, func(value int) string { return fmt.Sprint(value) })
}

func list(mask uint64, name func(int) string) string {
	var parts []string
	for _, r := range ranges(mask) {
		switch low, high := r[0], r[1]; {
		case high-low >= 2:
			parts = append(parts, name(low)+" to "+name(high))
		case high > low:
			parts = append(parts, name(low), name(high))
		default:
			parts = append(parts, name(low))
		}
	}
	return join(parts)
}

func join(parts []string) string {
	last := len(parts) - 1
	if last < 1 {
		return strings.Join(parts, "")
	}
	return strings.Join(parts[:last], ", ") + " and " + parts[last]
}

// isCycle reports whether the mask is 0, n, 2n, ... and n divides size, so that the values are
// evenly spaced across the end.
func isCycle(mask uint64, size int) bool {
	count := bits.OnesCount64(mask)
	if size%count != 0 {
		return false
	}
	for i := range count {
		if mask&(1<<(i*size/count)) == 0 {
			return false
		}
	}
	return true
}

// ranges returns the first and last value of each group of consecutive values.
func ranges(mask uint64) (groups [][2]int) {
	for _, value := range values(mask) {
		if n := len(groups); n > 0 && groups[n-1][1] == value-1 {
			groups[n-1][1] = value
		} else {
			groups = append(groups, [2]int{value, value})
		}
	}
	return groups
}

func values(mask uint64) (set []int) {
	for ; mask != 0; mask &= mask - 1 {
		set = append(set, lowest(mask))
	}
	return set
}
