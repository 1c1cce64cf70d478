// Package duration reads durations as people write them: 90s, 1h30m, 7d, 2w or 1d12h.
package duration

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const mostDays = 36500

var days = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)([dw])`)

var (
	errWrong   = errors.New("want a duration such as 90s, 1h30m or 7d")
	errTooLong = errors.New("is too long a duration: want at most 36500d")
)

// Parse reads 90s, 1h30m, 500ms, 7d, 2w or 1d12h. A day has 24 hours.
func Parse(text string) (time.Duration, error) {
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
		return 0, errors.New("is negative: want a duration such as 90s, 1h30m or 7d")
	case err != nil:
		return 0, errWrong
	case whole+d < 0:
		return 0, errTooLong
	}
	return whole + d, nil
}
