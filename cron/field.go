package cron

import (
	"errors"
	"fmt"
	"strings"
)

// kind describes one of the five fields.
type kind struct {
	name     string
	min, max int
	last     int      // where * and an open step end; differs from max because Sunday may be 7
	values   string   // allowed values, for errors
	names    []string // names of the values from min on
	days     bool     // other crons give L, W and # a meaning in this field
}

var kinds = [5]kind{
	{name: "minute", max: 59, last: 59, values: "0-59"},
	{name: "hour", max: 23, last: 23, values: "0-23"},
	{name: "day of month", min: 1, max: 31, last: 31, values: "1-31", days: true},
	{name: "month", min: 1, max: 12, last: 12, values: "1-12 or JAN-DEC", names: []string{
		"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}},
	{name: "day of week", max: 7, last: 6, values: "0-7 or SUN-SAT", days: true, names: []string{
		"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}},
}

// field is a parsed field.
type field struct {
	mask uint64 // bit n: value n matches
	any  bool   // unrestricted: has a wildcard without a step above 1
	wild bool   // has a wildcard or a step
}

func (k *kind) parse(text string) (field, error) {
	var f field
	for item := range strings.SplitSeq(text, ",") {
		low, high, step := k.min, k.last, 1
		span, stepText, stepped := strings.Cut(item, "/")
		star := span == "*" || span == "?"
		var err error
		if !star {
			if low, high, err = k.parseSpan(span, stepped); err != nil {
				return f, err
			}
		}
		if stepped {
			if step, err = k.parseStep(stepText); err != nil {
				return f, err
			}
		}
		for value := low; value <= high; value += step {
			f.mask |= 1 << value
		}
		f.any = f.any || star && step == 1
		f.wild = f.wild || star || stepped
	}
	return f, nil
}

// parseSpan parses a value or a range. A single value that is followed by a step extends to the
// end.
func (k *kind) parseSpan(text string, open bool) (low, high int, err error) {
	lowText, highText, ranged := strings.Cut(text, "-")
	if low, err = k.parseValue(lowText); err != nil {
		return 0, 0, err
	}
	switch {
	case ranged:
		if high, err = k.parseValue(highText); err != nil {
			return 0, 0, err
		}
		if high < low {
			return 0, 0, fmt.Errorf("range %s runs backwards, want low-high within %s", text, k.values)
		}
		return low, high, nil
	case open:
		return low, max(low, k.last), nil
	}
	return low, low, nil
}

func (k *kind) parseValue(text string) (int, error) {
	for i, name := range k.names {
		if strings.EqualFold(name, text) {
			return k.min + i, nil
		}
	}
	value, err := parseNumber(text)
	switch {
	case text == "":
		return 0, fmt.Errorf("a value is missing, allowed are %s", k.values)
	case err != nil && k.days && isExtension(text):
		return 0, fmt.Errorf("%q: L, W and # are not supported, allowed are %s", text, k.values)
	case err != nil:
		return 0, fmt.Errorf("%q is not a value, allowed are %s", text, k.values)
	case value < k.min || value > k.max:
		return 0, fmt.Errorf("%s is out of range, allowed are %s", text, k.values)
	}
	return value, nil
}

// isExtension recognizes last day (L), nearest weekday (W) and nth weekday (#).
func isExtension(text string) bool {
	text = strings.ToUpper(text)
	return strings.HasSuffix(text, "L") || strings.HasSuffix(text, "W") || strings.Contains(text, "#")
}

func (k *kind) parseStep(text string) (int, error) {
	most := k.last - k.min + 1
	step, err := parseNumber(text)
	if err != nil || step < 1 || step > most {
		return 0, fmt.Errorf("step %q is out of range, allowed are 1-%d", text, most)
	}
	return step, nil
}

var errNotNumber = errors.New("not a number")

// parseNumber reads decimal digits and nothing else: no sign, no spaces.
func parseNumber(text string) (int, error) {
	if text == "" {
		return 0, errNotNumber
	}
	number := 0
	for _, digit := range []byte(text) {
		if digit < '0' || digit > '9' {
			return 0, errNotNumber
		}
		number = min(number*10+int(digit-'0'), 9999) // out of every range, and it cannot overflow
	}
	return number, nil
}
