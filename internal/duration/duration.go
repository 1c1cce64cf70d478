// Package duration parses durations as people write them: 90s, 1h30m, 7d, 2w, 1d12h, or a number of
// seconds.
package duration

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Form describes how to write durations. It follows the word "want".
const Form = "a duration such as 90s, 1h30m or 7d, or a number of seconds"

const (
	mostDays = 36500
	want     = "want " + Form
)

var (
	days    = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)([dw])`)
	seconds = regexp.MustCompile(`^[0-9]+(?:\.[0-9]+)?$`)
)

var (
	errWrong   = errors.New(want)
	errTooLong = errors.New("is too long a duration: want at most 36500d")
)

// ParseUnit is Parse for durations that need a unit. It is for values where a bare number is probably a
// year, or for retentions, which are never a few seconds.
func ParseUnit(text string) (time.Duration, error) {
	if text != "0" && bare(text) {
		return 0, errors.New("want a duration with its unit, such as 72h or 30d")
	}
	return Parse(text)
}

// ParseKept parses how long to keep something. It needs a unit. It refuses 0, which would mean the
// default.
func ParseKept(text string) (time.Duration, error) { return positive(ParseUnit(text)) }

// ParsePositive parses a duration and refuses 0, which would mean the default or no limit.
func ParsePositive(text string) (time.Duration, error) { return positive(Parse(text)) }

func positive(d time.Duration, err error) (time.Duration, error) {
	if err == nil && d == 0 {
		err = errors.New("want a duration above 0, such as 90s, 1h30m or 7d")
	}
	return d, err
}

// Parse parses a duration: 90s, 1h30m, 500ms, 7d, 2w, 1d12h, or 90 for seconds. A day has 24 hours.
func Parse(text string) (time.Duration, error) {
	if bare(text) {
		text += "s"
	}
	rest, whole := text, time.Duration(0)
	if m := days.FindStringSubmatch(text); m != nil {
		n, err := strconv.ParseFloat(m[1], 64)
		if m[2] == "w" {
			n *= 7
		}
		if err != nil || n > mostDays {
			return 0, errTooLong
		}
		whole, rest = time.Duration(n*24*float64(time.Hour)), text[len(m[0]):]
		if rest == "" {
			return whole, nil
		}
	}
	d, err := time.ParseDuration(rest)
	switch {
	case err != nil && strings.HasPrefix(text, "-"), err == nil && d < 0:
		return 0, errors.New("is negative: " + want)
	case err != nil:
		return 0, errWrong
	case whole+d < 0:
		return 0, errTooLong
	}
	return whole + d, nil
}

// Text formats a duration as people write it: 90s, 24h or 7d.
func Text(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= 2*day && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	return Hours(d)
}

// Hours is Text without days: 48h.
func Hours(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// bare reports whether text is a number without a unit.
func bare(text string) bool { return seconds.MatchString(text) }
