// Package cron computes the instants at which a cron expression fires.
//
// Such an instant is called a tick. Parse parses an expression and rejects what it does not
// support. The resulting Schedule returns the next and previous ticks, and a description in words.
//
// The package is pure. It reads no clock and keeps no state. Apart from its arguments, it uses only
// the time zone database, and that only while parsing.
//
// # Expressions
//
// An expression is five fields, a macro, or a period:
//
//	minute hour day-of-month month day-of-week
//	@hourly @daily @midnight @weekly @monthly @yearly @annually
//	@every 1h30m
//
// A field is a comma-separated list of values (5), ranges (9-17), wildcards (* or ?) and steps
// (*/15, 9-17/2, 5/15 meaning 5 to the end). Months and weekdays may be named (JAN, MON, any case);
// Sunday is 0 or 7. When day of month and day of week are both restricted, a day needs to match
// only one of them. A field is unrestricted when it holds a * or ? without a step above 1.
//
// An expression may start with CRON_TZ=Zone or TZ=Zone, an IANA zone name. Without it, the zone is
// the one given to ParseIn, or UTC.
//
// # Daylight saving time
//
// A schedule whose hour field is made of plain values and ranges has fixed hours. It promises one
// tick for each wall clock minute it names:
//
//   - a minute skipped by the clock ticks at the first valid instant after the
//     gap (02:30 in a 02:00-03:00 gap ticks at 03:00), and all minutes skipped
//     by one gap share that one tick, even where a zone skipped a whole day;
//   - a minute the clock repeats ticks at its first occurrence only.
//
// A schedule whose hour field holds a wildcard or a step follows elapsed time. It ticks whenever
// the wall clock shows a matching minute: never inside a gap, and twice where the clock repeats
// itself.
//
// A period (@every) ignores the wall clock. Its ticks are the whole multiples of the period counted
// from 1970-01-01 00:00 UTC, or from the instant given to Schedule.From, so they do not drift, and
// everyone computes the same ones. The period is a Go duration, which may begin with days or weeks:
// 90s, 1h30m, 7d, 2w.
package cron
