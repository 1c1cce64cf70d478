package cron_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/cron"
)

func FuzzParse(f *testing.F) {
	for _, expr := range []string{
		"", "* * * * *", "*/15 9-17 * * MON-FRI", "30 2 * * *", "5/15 0,12 1-7 JAN,jul ?", "0 0 13 * 5", "0 0 29 2 *",
		"* * 31 2 *", "60 * * * *", "*/0 * * * *", "5-1 * * * *", "* * L * *", "* * * * 5#2", "0 0 * * 7/2",
		"@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually", "@reboot",
		"@every 1s", "@every 1h30m", "@every 0s", "@every -1s", "@every 2562047h",
		"CRON_TZ=America/New_York 30 1 * * *", "TZ=Australia/Lord_Howe 15 2 * * *", "TZ=Pacific/Apia 0 12 30 12 *",
		"TZ=Mars/Phobos * * * * *", "TZ=../../etc/localtime * * * * *", "TZ= * * * * *", "TZ=UTC", "\x00\xff * * * *",
		strings.Repeat("1,", 200) + "1 * * * *",
	} {
		f.Add(expr, int64(1_767_225_600))
	}
	f.Fuzz(func(t *testing.T, expr string, unix int64) {
		s, err := cron.Parse(expr)
		if err != nil {
			if len(err.Error()) > 8*cron.MaxLength {
				t.Fatalf("error of %d bytes", len(err.Error()))
			}
			return
		}
		if s.Words() == "" {
			t.Fatalf("%q has no words", expr)
		}
		again, err := cron.ParseIn(s.String(), "Asia/Tokyo")
		if err != nil {
			t.Fatalf("%q became %q: %v", expr, s.String(), err)
		}
		tick := time.Unix(unix, 0)
		for i := range 20 {
			next := s.Next(tick)
			if other := again.Next(tick); !other.Equal(next) {
				t.Fatalf("after %v: %q ticks at %v, %q at %v", tick, expr, next, s, other)
			}
			if next.IsZero() {
				return
			}
			if !next.After(tick) {
				t.Fatalf("%q after %v: %v", expr, tick, next)
			}
			if prev := s.Prev(next); prev.After(tick) || i > 0 && !prev.Equal(tick) {
				t.Fatalf("%q before %v: %v, but after %v", expr, next, prev, tick)
			}
			tick = next
		}
	})
}
