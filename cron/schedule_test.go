package cron_test

import (
	"testing"
	"time"

	"github.com/tuskqueue/tusk/cron"
)

func TestDaylightSaving(t *testing.T) {
	tests := []struct {
		name, zone, expr, after string
		want                    []string // consecutive ticks in local time
	}{
		{"fixed hour in the gap ticks at its end", "America/New_York", "30 2 * * *", "2026-03-07T12:00:00Z",
			[]string{"2026-03-08T03:00:00-04:00", "2026-03-09T02:30:00-04:00"}},
		{"all minutes of a gap share one tick", "America/New_York", "*/20 2 * * *", "2026-03-08T00:00:00-05:00",
			[]string{"2026-03-08T03:00:00-04:00", "2026-03-09T02:00:00-04:00", "2026-03-09T02:20:00-04:00"}},
		{"gap tick and ordinary tick coincide", "America/New_York", "0,30 2,3 * * *", "2026-03-08T00:00:00-05:00",
			[]string{"2026-03-08T03:00:00-04:00", "2026-03-08T03:30:00-04:00", "2026-03-09T02:00:00-04:00"}},
		{"the skipped day decides, not the day after", "America/New_York", "30 2 * * SUN", "2026-03-08T00:00:00-05:00",
			[]string{"2026-03-08T03:00:00-04:00", "2026-03-15T02:30:00-04:00"}},
		{"fixed hour in the repeated hour ticks once", "America/New_York", "30 1 * * *", "2026-11-01T00:00:00-04:00",
			[]string{"2026-11-01T01:30:00-04:00", "2026-11-02T01:30:00-05:00"}},
		{"asked during the second occurrence", "America/New_York", "30 1 * * *", "2026-11-01T01:10:00-05:00",
			[]string{"2026-11-02T01:30:00-05:00"}},
		{"hour range is fixed hours", "America/New_York", "30 0-2 * * *", "2026-11-01T00:00:00-04:00",
			[]string{"2026-11-01T00:30:00-04:00", "2026-11-01T01:30:00-04:00", "2026-11-01T02:30:00-05:00"}},
		{"wildcard hour skips the gap", "America/New_York", "30 * * * *", "2026-03-08T01:00:00-05:00",
			[]string{"2026-03-08T01:30:00-05:00", "2026-03-08T03:30:00-04:00"}},
		{"wildcard hour runs in both repeated hours", "America/New_York", "30 * * * *", "2026-11-01T01:00:00-04:00",
			[]string{"2026-11-01T01:30:00-04:00", "2026-11-01T01:30:00-05:00", "2026-11-01T02:30:00-05:00"}},
		{"hour step follows elapsed time", "America/New_York", "0 */2 * * *", "2026-03-08T00:00:00-05:00",
			[]string{"2026-03-08T04:00:00-04:00", "2026-03-08T06:00:00-04:00"}},
		{"period ignores the gap", "America/New_York", "@every 30m", "2026-03-08T01:15:00-05:00",
			[]string{"2026-03-08T01:30:00-05:00", "2026-03-08T03:00:00-04:00", "2026-03-08T03:30:00-04:00"}},

		{"30 minute gap", "Australia/Lord_Howe", "15 2 * * *", "2026-10-03T12:00:00Z",
			[]string{"2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"}},
		{"after the 30 minute gap nothing moves", "Australia/Lord_Howe", "45 2 * * *", "2026-10-03T12:00:00Z",
			[]string{"2026-10-04T02:45:00+11:00", "2026-10-05T02:45:00+11:00"}},
		{"30 minute repeat", "Australia/Lord_Howe", "45 1 * * *", "2026-04-04T12:00:00Z",
			[]string{"2026-04-05T01:45:00+11:00", "2026-04-06T01:45:00+10:30"}},
		{"30 minute repeat, wildcard hour", "Australia/Lord_Howe", "*/30 * * * *", "2026-04-05T01:15:00+11:00",
			[]string{"2026-04-05T01:30:00+11:00", "2026-04-05T01:30:00+10:30", "2026-04-05T02:00:00+10:30"}},

		{"midnight gap", "America/Sao_Paulo", "@daily", "2017-10-14T12:00:00-03:00",
			[]string{"2017-10-15T01:00:00-02:00", "2017-10-16T00:00:00-02:00"}},
		{"midnight gap on a monthly date", "America/Sao_Paulo", "30 0 15 * *", "2017-10-14T12:00:00-03:00",
			[]string{"2017-10-15T01:00:00-02:00", "2017-11-15T00:30:00-02:00"}},
		{"evening repeated across midnight", "America/Sao_Paulo", "30 23 * * *", "2018-02-17T12:00:00-02:00",
			[]string{"2018-02-17T23:30:00-02:00", "2018-02-18T23:30:00-03:00"}},

		{"Berlin gap", "Europe/Berlin", "0 2 * * *", "2026-03-28T12:00:00+01:00",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"}},
		{"Berlin repeat", "Europe/Berlin", "0,59 2 * * *", "2026-10-25T00:00:00+02:00",
			[]string{"2026-10-25T02:00:00+02:00", "2026-10-25T02:59:00+02:00", "2026-10-26T02:00:00+01:00"}},

		{"skipped day ticks at its end", "Pacific/Apia", "0 12 * * *", "2011-12-29T00:00:00-10:00",
			[]string{"2011-12-29T12:00:00-10:00", "2011-12-31T00:00:00+14:00", "2011-12-31T12:00:00+14:00"}},
		{"skipped date ticks at its end", "Pacific/Apia", "0 12 30 12 *", "2011-12-29T00:00:00-10:00",
			[]string{"2011-12-31T00:00:00+14:00", "2012-12-30T12:00:00+14:00"}},
		{"wildcard hour skips the skipped day", "Pacific/Apia", "0 */12 30,31 12 *", "2011-12-29T00:00:00-10:00",
			[]string{"2011-12-31T00:00:00+14:00", "2011-12-31T12:00:00+14:00", "2012-12-30T00:00:00+14:00"}},

		{"Ramadan repeat", "Africa/Casablanca", "30 2 * * *", "2026-02-14T12:00:00Z",
			[]string{"2026-02-15T02:30:00+01:00", "2026-02-16T02:30:00Z"}},
		{"Ramadan gap", "Africa/Casablanca", "30 2 * * *", "2026-03-21T12:00:00Z",
			[]string{"2026-03-22T03:00:00+01:00", "2026-03-23T02:30:00+01:00"}},

		{"last day of a leap year in a rule-driven year", "America/New_York", "30 */8 * * *", "2040-12-30T20:00:00-05:00",
			[]string{"2040-12-31T00:30:00-05:00", "2040-12-31T08:30:00-05:00", "2040-12-31T16:30:00-05:00",
				"2041-01-01T00:30:00-05:00"}},
		{"the same with fixed hours", "America/New_York", "30 20 * * *", "2040-12-30T19:00:00-05:00",
			[]string{"2040-12-30T20:30:00-05:00", "2040-12-31T20:30:00-05:00", "2041-01-01T20:30:00-05:00"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := mustParse(t, test.expr, test.zone)
			tick := at(test.after)
			for _, want := range test.want {
				if tick = s.Next(tick); tick.Format(time.RFC3339) != want {
					t.Fatalf("%s: got tick %s, want %s", s, tick.Format(time.RFC3339), want)
				}
			}
			for i := len(test.want) - 2; i >= 0; i-- {
				if tick = s.Prev(tick); tick.Format(time.RFC3339) != test.want[i] {
					t.Fatalf("%s: got previous tick %s, want %s", s, tick.Format(time.RFC3339), test.want[i])
				}
			}
		})
	}
}

func TestNextIsStrict(t *testing.T) {
	s := mustParse(t, "0 12 * * *", "UTC")
	noon := at("2026-05-01T12:00:00Z")
	for _, test := range []struct{ got, want time.Time }{
		{s.Next(noon), noon.AddDate(0, 0, 1)},
		{s.Next(noon.Add(-1)), noon},
		{s.Next(noon.Add(1)), noon.AddDate(0, 0, 1)},
		{s.Prev(noon), noon.AddDate(0, 0, -1)},
		{s.Prev(noon.Add(1)), noon},
		{s.Prev(noon.Add(-1)), noon.AddDate(0, 0, -1)},
	} {
		if !test.got.Equal(test.want) {
			t.Errorf("got %v, want %v", test.got, test.want)
		}
	}
}

func TestCalendar(t *testing.T) {
	tests := []struct{ expr, after, want string }{
		{"0 0 29 2 *", "2096-03-01T00:00:00Z", "2104-02-29T00:00:00Z"},
		{"0 */2 29 2 *", "2096-03-01T00:00:00Z", "2104-02-29T00:00:00Z"},
		{"TZ=Europe/Berlin 0 */3 29 2 *", "2096-03-01T00:00:00Z", "2104-02-28T23:00:00Z"},
		{"0 0 29 2 *", "2024-02-29T00:00:00Z", "2028-02-29T00:00:00Z"},
		{"0 0 31 * *", "2026-01-31T00:00:00Z", "2026-03-31T00:00:00Z"},
		{"0 0 13 * 5", "2026-02-10T00:00:00Z", "2026-02-13T00:00:00Z"},
		{"0 0 13 * 5", "2026-02-13T00:00:00Z", "2026-02-20T00:00:00Z"},
		{"0 0 31 2 1", "2026-01-01T00:00:00Z", "2026-02-02T00:00:00Z"},
		{"59 23 31 12 *", "2026-12-31T23:59:00Z", "2027-12-31T23:59:00Z"},
		{"* * * * *", "1969-12-31T23:59:30Z", "1970-01-01T00:00:00Z"},
		{"0 0 * * SUN", "1969-07-16T00:00:00Z", "1969-07-20T00:00:00Z"},
		{"0 0 * * MON", "1900-01-01T00:00:00Z", "1900-01-08T00:00:00Z"},
		{"@every 7h", "1969-12-31T23:59:59Z", "1970-01-01T00:00:00Z"},
		{"@every 7h", "1969-12-31T12:00:00Z", "1969-12-31T17:00:00Z"},
		{"@every 24h", "2026-05-01T00:00:00Z", "2026-05-02T00:00:00Z"},
	}
	for _, test := range tests {
		if got := mustParse(t, test.expr, "UTC").Next(at(test.after)); !got.Equal(at(test.want)) {
			t.Errorf("%q after %s: got %v, want %s", test.expr, test.after, got, test.want)
		}
	}
}

func TestEndsOfTime(t *testing.T) {
	far := time.Unix(1<<62, 0)
	for _, expr := range []string{"* * * * *", "30 2 * * *", "0 0 29 2 *", "0 */2 29 2 *", "@every 1s",
		"@every 2000000h"} {
		for _, zone := range []string{"UTC", "America/New_York", "Pacific/Apia"} {
			s := mustParse(t, expr, zone)
			for _, instant := range []time.Time{far, at("9999-12-31T23:59:59Z")} {
				if got := s.Next(instant); !got.IsZero() {
					t.Errorf("%s: Next(%v) = %v", s, instant, got)
				}
				if got := s.Prev(instant); expr != "@every 2000000h" && got.Year() < 9990 {
					t.Errorf("%s: Prev(%v) = %v", s, instant, got)
				}
			}
			for _, instant := range []time.Time{{}, time.Unix(-1<<62, 0)} {
				if got := s.Prev(instant); !got.IsZero() {
					t.Errorf("%s: Prev(%v) = %v", s, instant, got)
				}
				if got := s.Next(instant); got.IsZero() || expr != "@every 2000000h" && got.Year() > 9 {
					t.Errorf("%s: Next(%v) = %v", s, instant, got)
				}
			}
		}
	}
}

func TestZeroSchedule(t *testing.T) {
	var s cron.Schedule
	if !s.Next(time.Now()).IsZero() || !s.Prev(time.Now()).IsZero() || s.String() != "" || s.Words() != "never" {
		t.Error("the zero Schedule must have no ticks, no text, and say so")
	}
}

func BenchmarkNext(b *testing.B) {
	for _, expr := range []string{"* * * * *", "30 2 * * MON-FRI", "0 0 29 2 *", "0 */2 29 2 *", "@every 90s"} {
		b.Run(expr, func(b *testing.B) {
			s := mustParse(b, expr, "America/New_York")
			start := at("2096-03-08T01:30:00Z")
			for b.Loop() {
				s.Next(start)
			}
		})
	}
}

func TestFromMovesPeriodsAndBoundsTheRest(t *testing.T) {
	first := time.Date(2026, 3, 2, 6, 30, 0, 0, time.UTC)
	week, err := cron.Parse("@every 7d")
	if err != nil {
		t.Fatal(err)
	}
	week = week.From(first)
	second := first.AddDate(0, 0, 7)
	for _, c := range []struct{ at, next, prev time.Time }{
		{first.AddDate(-1, 0, 0), first, time.Time{}},
		{first.Add(-time.Nanosecond), first, time.Time{}},
		{first, second, time.Time{}},
		{first.Add(time.Nanosecond), second, first},
		{second, second.AddDate(0, 0, 7), first},
	} {
		if next, prev := week.Next(c.at), week.Prev(c.at); !next.Equal(c.next) || !prev.Equal(c.prev) {
			t.Errorf("at %v: next %v, want %v; previous %v, want %v", c.at, next, c.next, prev, c.prev)
		}
	}
	if next := week.From(first.Add(1)).Next(first); !next.Equal(first.Add(time.Second)) {
		t.Errorf("a start within a second is %v", next)
	}
	daily, _ := cron.Parse("30 6 * * *")
	daily = daily.From(first)
	if next := daily.Next(first.AddDate(0, 0, -9)); !next.Equal(first) {
		t.Errorf("the first tick of a cron expression is %v", next)
	}
	if prev := daily.Prev(first); !prev.IsZero() {
		t.Errorf("before its start a cron expression ticked at %v", prev)
	}
}
