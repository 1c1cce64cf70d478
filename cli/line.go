package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/form"
)

// line is one task of a bulk file while it is being read.
type line struct {
	kind       string
	args       json.RawMessage
	options    tusk.Options
	onConflict string
}

// lineFields reads the fields that a line may have.
var lineFields = map[string]func(*line, json.RawMessage) error{
	"kind":         func(l *line, raw json.RawMessage) error { return textField(raw, &l.kind) },
	"args":         func(l *line, raw json.RawMessage) error { l.args = raw; return nil },
	"queue":        func(l *line, raw json.RawMessage) error { return textField(raw, &l.options.Queue) },
	"partition":    func(l *line, raw json.RawMessage) error { return textField(raw, &l.options.Partition) },
	"tenant":       func(l *line, raw json.RawMessage) error { return textField(raw, &l.options.Tenant) },
	"priority":     func(l *line, raw json.RawMessage) error { return numberField(raw, &l.options.Priority) },
	"max_attempts": func(l *line, raw json.RawMessage) error { return attemptsField(raw, &l.options.MaxAttempts) },
	"key":          func(l *line, raw json.RawMessage) error { return textField(raw, &l.options.Key) },
	"on_conflict": func(l *line, raw json.RawMessage) error {
		return readField(raw, oneOf(&l.onConflict, "skip", "replace", "rerun", "once"))
	},
	"run_at":      func(l *line, raw json.RawMessage) error { return readField(raw, instantFlag(&l.options.RunAt)) },
	"delay":       func(l *line, raw json.RawMessage) error { return durationField(raw, &l.options.Delay) },
	"expires_at":  func(l *line, raw json.RawMessage) error { return readField(raw, instantFlag(&l.options.ExpiresAt)) },
	"expires_in":  func(l *line, raw json.RawMessage) error { return durationField(raw, &l.options.ExpiresIn) },
	"deadline":    func(l *line, raw json.RawMessage) error { return readField(raw, instantFlag(&l.options.Deadline)) },
	"deadline_in": func(l *line, raw json.RawMessage) error { return durationField(raw, &l.options.DeadlineIn) },
	"weight": func(l *line, raw json.RawMessage) error {
		return typedField(raw, &l.options.Weight, "a whole number")
	},
	"ephemeral": func(l *line, raw json.RawMessage) error {
		return typedField(raw, &l.options.Ephemeral, "true or false")
	},
	"source_time": func(l *line, raw json.RawMessage) error {
		return readField(raw, instantFlag(&l.options.SourceTime))
	},
	"unique":        func(l *line, raw json.RawMessage) error { return readField(raw, uniqueFlag(&l.options.Unique)) },
	"stall_timeout": func(l *line, raw json.RawMessage) error { return durationField(raw, &l.options.StallTimeout) },
	"timeout":       func(l *line, raw json.RawMessage) error { return durationField(raw, &l.options.Timeout) },
	"backoff": func(l *line, raw json.RawMessage) error {
		return readField(raw, &value[tusk.Backoff]{into: &l.options.Backoff, parse: parseBackoff})
	},
	"tags": func(l *line, raw json.RawMessage) error { return typedField(raw, &l.options.Tags, "a list of strings") },
	"metadata": func(l *line, raw json.RawMessage) error {
		return typedField(raw, &l.options.Metadata, "an object of strings")
	},
}

// parseLine reads one task. The client checks whether its values are allowed.
func parseLine(text []byte) (task tusk.NewTask, err error) {
	var l line
	if err := l.read(text); err != nil {
		return task, err
	}
	if l.kind == "" {
		return task, errors.New("kind is missing")
	}
	l.options.OnConflict = conflictOf(l.onConflict)
	return tusk.NewTask{Args: tusk.RawArgs{Name: l.kind, JSON: l.args}, Options: &l.options}, nil
}

// read reads the object field by field.
func (l *line) read(text []byte) error {
	if err := form.One(text); err != nil {
		return err
	}
	if text = bytes.TrimSpace(text); text[0] != '{' {
		return errors.New(`want an object such as {"kind":"send_email","args":{}}`)
	}
	return form.Object(text, slices.Sorted(maps.Keys(lineFields)), func(name string) bool { return name == "args" },
		func(name string, raw json.RawMessage) error { return lineFields[name](l, raw) })
}

func typedField[T any](raw json.RawMessage, into *T, want string) error {
	if err := json.Unmarshal(raw, into); err != nil {
		return errors.New("want " + want)
	}
	return nil
}

func textField(raw json.RawMessage, into *string) error { return typedField(raw, into, "a string") }

func numberField(raw json.RawMessage, into *int16) error {
	return typedField(raw, into, "a whole number from -32768 to 32767")
}

func attemptsField(raw json.RawMessage, into *int) error {
	want := fmt.Sprintf("a whole number from 1 to %d", tusk.MaxAttemptsLimit)
	if err := typedField(raw, into, want); err != nil || *into < 1 {
		return errors.New("want " + want)
	}
	return nil
}

// readField reads a string as the flag of the same name does.
func readField(raw json.RawMessage, into interface{ Set(string) error }) error {
	var text string
	if err := textField(raw, &text); err != nil {
		return err
	}
	return into.Set(text)
}

// durationField reads a text as a flag does, or a number of seconds.
func durationField(raw json.RawMessage, into *time.Duration) error {
	text, seconds := string(raw), 0.0
	if json.Unmarshal(raw, &seconds) == nil {
		text = strconv.FormatFloat(seconds, 'f', -1, 64)
	} else {
		_ = json.Unmarshal(raw, &text) // other JSON stays as it is, and is rejected as a duration
	}
	return durationFlag(into).Set(text)
}
