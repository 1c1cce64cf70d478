package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/duration"
)

// This file has the types of values for flags, variables and the fields of a bulk file.

// parseInstant reads a time in RFC 3339 format, which has a zone.
func parseInstant(text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err == nil {
		return t, nil
	}
	for _, zoneless := range []string{"2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04",
		"2006-01-02"} {
		if _, err := time.Parse(zoneless, text); err == nil {
			return t, errors.New("has no time zone: want RFC 3339, such as 2026-03-01T08:30:00Z or 2026-03-01T08:30:00+01:00")
		}
	}
	return t, errors.New("want RFC 3339, such as 2026-03-01T08:30:00Z")
}

// parseWhen reads a time, or a duration before now.
func parseWhen(text string) (time.Time, error) {
	if d, err := duration.ParseUnit(text); err == nil {
		return time.Now().Add(-d), nil
	}
	t, err := parseInstant(text)
	if err != nil {
		return t, errors.New("want how long ago, such as 2h or 7d, or RFC 3339, such as 2026-03-01T08:30:00Z")
	}
	return t, nil
}

// value is a flag of any type, read by a function.
type value[T any] struct {
	into  *T
	text  string
	name  string
	parse func(string) (T, error)
}

func (v *value[T]) String() string { return v.text }
func (v *value[T]) Type() string   { return v.name }

func (v *value[T]) Set(text string) error {
	parsed, err := v.parse(text)
	if err == nil {
		*v.into, v.text = parsed, text
	}
	return err
}

// durationFlag returns a flag for a duration. The value of into is the default.
func durationFlag(into *time.Duration) *value[time.Duration] {
	v := &value[time.Duration]{into: into, name: "duration", parse: duration.Parse}
	if *into != 0 {
		v.text = duration.Text(*into)
	}
	return v
}

// positiveFlag returns a flag for a duration above zero, because zero would mean the default or no limit.
func positiveFlag(into *time.Duration) *value[time.Duration] {
	v := durationFlag(into)
	v.parse = duration.ParsePositive
	return v
}

// keepFlag returns a flag for a duration or forever.
func keepFlag(into *time.Duration) *value[time.Duration] {
	return &value[time.Duration]{into: into, name: "duration", parse: func(text string) (time.Duration, error) {
		if text == "forever" {
			return tusk.Forever, nil
		}
		return duration.ParseKept(text)
	}}
}

func instantFlag(into *time.Time) *value[time.Time] {
	return &value[time.Time]{into: into, name: "time", parse: func(text string) (time.Time, error) {
		t, err := parseInstant(text)
		return tusk.At(t), err
	}}
}

func whenFlag(into *time.Time, text string) *value[time.Time] {
	v := &value[time.Time]{into: into, name: "when", parse: parseWhen}
	if text != "" {
		_ = v.Set(text) // the default is covered by the tests
	}
	return v
}

// numberFlag returns a flag for a whole number within bounds.
func numberFlag[N int | int16](into *N, low, high N) *value[N] {
	v := &value[N]{into: into, name: "number", parse: func(text string) (N, error) {
		n, err := strconv.ParseInt(text, 10, 64)
		if errors.Is(err, strconv.ErrSyntax) {
			return 0, errors.New("want a whole number")
		}
		if err != nil || n < int64(low) || n > int64(high) {
			return 0, fmt.Errorf("want a number from %d to %d", low, high)
		}
		return N(n), nil
	}}
	if *into != 0 {
		v.text = strconv.Itoa(int(*into))
	}
	return v
}

// emptyFlag rejects a flag with an empty value. It would count as not given, so an unset variable in a script would
// make a command do more than intended, or something else.
func emptyFlag(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if list, ok := f.Value.(pflag.SliceValue); err == nil && (f.Value.String() == "" || f.Value.String() == "[]" ||
			ok && !slices.ContainsFunc(list.GetSlice(), func(s string) bool { return s != "" })) {
			err = usage("give it a value or leave it out; is a variable of the shell unset?", "--%s is empty", f.Name)
		}
	})
	return err
}
