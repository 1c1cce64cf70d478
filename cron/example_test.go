package cron_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk/cron"
)

func ExampleParse() {
	s, err := cron.Parse("CRON_TZ=America/New_York 30 2 * * *")
	if err != nil {
		fmt.Println(err)
		return
	}
	// On 8 March 2026 the clock in New York jumps from 02:00 to 03:00.
	tick := time.Date(2026, 3, 7, 0, 0, 0, 0, time.UTC)
	for range 3 {
		tick = s.Next(tick)
		fmt.Println(tick)
	}
	// Output:
	// 2026-03-07 02:30:00 -0500 EST
	// 2026-03-08 03:00:00 -0400 EDT
	// 2026-03-09 02:30:00 -0400 EDT
}

func ExampleParse_errors() {
	for _, expr := range []string{"60 * * * *", "0 0 1 * * *", "0 0 31 2 *"} {
		if _, err := cron.Parse(expr); errors.Is(err, cron.ErrNeverFires) {
			fmt.Println("never:", err)
		} else {
			fmt.Println(err)
		}
	}
	// Output:
	// cron: minute field "60": 60 is out of range, allowed are 0-59
	// cron: found 6 fields, want 5: minute, hour, day of month, month, day of week (seconds and years are not supported)
	// never: cron: day of month field "31" with month field "2": the schedule never fires
}

func ExampleParseIn() {
	s, _ := cron.ParseIn("0 9 * * MON", "Europe/Berlin")
	fmt.Println(s)
	fmt.Println(s.Next(time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)))
	// Output:
	// CRON_TZ=Europe/Berlin 0 9 * * MON
	// 2026-05-04 09:00:00 +0200 CEST
}

func ExampleSchedule_Words() {
	for _, expr := range []string{"30 2 * * MON-FRI", "*/15 * * * *", "0 0 1 JAN,JUL *", "@every 90m"} {
		s, _ := cron.Parse(expr)
		fmt.Println(s.Words())
	}
	// Output:
	// at 02:30 on Monday to Friday
	// every 15 minutes
	// at 00:00 on day 1 of the month in January and July
	// every 1 hour 30 minutes
}

func ExampleSchedule_Prev() {
	s, _ := cron.Parse("@every 6h")
	now := time.Date(2026, 5, 1, 13, 37, 0, 0, time.UTC)
	fmt.Println(s.Prev(now))
	fmt.Println(s.Next(now))
	// Output:
	// 2026-05-01 12:00:00 +0000 UTC
	// 2026-05-01 18:00:00 +0000 UTC
}
