package cron

import (
	"math/bits"
	"time"
)

const (
	secondsPerDay = 24 * 3600

	// searchYears is how far a search goes before it gives up. The longest wait on the calendar is
	// 8 years, for 29 February across a year such as 2100. Twice that also covers a tick lost to a
	// gap in its zone.
	searchYears   = 17
	searchSeconds = searchYears * 366 * secondsPerDay
)

// fields is the calendar part of a schedule. Bit n of a mask says that value n matches. It knows
// only wall clocks, as seconds since 1970-01-01 00:00 on that clock, and no zones.
type fields struct {
	minute, hour, dom, month, dow uint64

	domAny, dowAny bool // the field is unrestricted
	elapsed        bool // the hour field has a wildcard or a step
}

// next returns the first matching minute at or after the wall clock second.
func (f *fields) next(wall int64) (int64, bool) {
	t := time.Unix(wall+59, 0).UTC()
	year, month, day := t.Date()
	if f.days(year, month)&(1<<day) != 0 {
		if clock, ok := f.nextClock(t.Hour(), t.Minute()); ok {
			return midnight(year, month, day) + clock, true
		}
	}
	later := f.days(year, month) &^ (2<<day - 1)
	for range searchYears * 12 {
		if later != 0 {
			clock, ok := f.nextClock(0, 0)
			return midnight(year, month, lowest(later)) + clock, ok
		}
		if month++; month > time.December {
			year, month = year+1, time.January
		}
		later = f.days(year, month)
	}
	return 0, false
}

// prev returns the last matching minute at or before the wall clock second.
func (f *fields) prev(wall int64) (int64, bool) {
	t := time.Unix(wall, 0).UTC()
	year, month, day := t.Date()
	if f.days(year, month)&(1<<day) != 0 {
		if clock, ok := f.prevClock(t.Hour(), t.Minute()); ok {
			return midnight(year, month, day) + clock, true
		}
	}
	earlier := f.days(year, month) & (1<<day - 1)
	for range searchYears * 12 {
		if earlier != 0 {
			clock, ok := f.prevClock(23, 59)
			return midnight(year, month, highest(earlier)) + clock, ok
		}
		if month--; month < time.January {
			year, month = year-1, time.December
		}
		earlier = f.days(year, month)
	}
	return 0, false
}

// fires reports whether any month can have a matching day.
func (f *fields) fires() bool {
	const leapYear = 2000
	for month := time.January; month <= time.December; month++ {
		if f.days(leapYear, month) != 0 {
			return true
		}
	}
	return false
}

// days returns the matching days of one month, day n in bit n.
func (f *fields) days(year int, month time.Month) uint64 {
	if f.month&(1<<month) == 0 {
		return 0
	}
	inMonth := uint64(2)<<daysIn(year, month) - 2
	if f.domAny && f.dowAny {
		return inMonth
	}
	byDate := f.dom & inMonth
	if f.dowAny {
		return byDate
	}
	// Rotate the week so that it starts with the weekday of the 1st. Then put five weeks end to end
	// from bit 1.
	first := floorDiv(midnight(year, month, 1), secondsPerDay) + 4 // 1970-01-01 was a Thursday
	weekday := first - 7*floorDiv(first, 7)
	week := (f.dow>>weekday | f.dow<<(7-weekday)) & (1<<7 - 1)
	byWeekday := (week | week<<7 | week<<14 | week<<21 | week<<28) << 1 & inMonth
	if f.domAny {
		return byWeekday
	}
	return byDate | byWeekday
}

// nextClock returns the first matching time of day at or after hour:minute, in
// seconds since midnight.
func (f *fields) nextClock(hour, minute int) (int64, bool) {
	if f.hour&(1<<hour) != 0 {
		if later := f.minute &^ (1<<minute - 1); later != 0 {
			return clock(hour, lowest(later)), true
		}
	}
	later := f.hour &^ (2<<hour - 1)
	if later == 0 {
		return 0, false
	}
	return clock(lowest(later), lowest(f.minute)), true
}

// prevClock returns the last matching time of day at or before hour:minute.
func (f *fields) prevClock(hour, minute int) (int64, bool) {
	if f.hour&(1<<hour) != 0 {
		if earlier := f.minute & (2<<minute - 1); earlier != 0 {
			return clock(hour, highest(earlier)), true
		}
	}
	earlier := f.hour & (1<<hour - 1)
	if earlier == 0 {
		return 0, false
	}
	return clock(highest(earlier), highest(f.minute)), true
}

func clock(hour, minute int) int64 { return int64(hour)*3600 + int64(minute)*60 }

func lowest(mask uint64) int  { return bits.TrailingZeros64(mask) }
func highest(mask uint64) int { return bits.Len64(mask) - 1 }

func midnight(year int, month time.Month, day int) int64 {
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix()
}

func daysIn(year int, month time.Month) int {
	switch month {
	case time.April, time.June, time.September, time.November:
		return 30
	case time.February:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}
