package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/tuskqueue/tusk"
)

// line is one task of a bulk file while it is read.
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

// parseLine reads one task. Whether its values are allowed is for the client to say.
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

// read goes through the object field by field, so that it notices those which
// come twice.
func (l *line) read(text []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	open, err := decoder.Token()
	if err != nil {
		return notJSON(decoder, err)
	}
	if open != json.Delim('{') {
		return errors.New(`want an object such as {"kind":"send_email","args":{}}`)
	}
	seen := map[string]bool{}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return notJSON(decoder, err)
		}
		name := token.(string) // of an object, always
		var raw json.RawMessage
		if err := decoder.Decode(&raw); err != nil {
			return notJSON(decoder, err)
		}
		if err := l.field(name, raw, seen); err != nil {
			return err
		}
	}
	if _, err := decoder.Token(); err != nil {
		return notJSON(decoder, err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return fmt.Errorf("not one JSON object: something follows it at byte %d", decoder.InputOffset())
	}
	return nil
}

func (l *line) field(name string, raw json.RawMessage, seen map[string]bool) error {
	read := lineFields[name]
	switch {
	case read == nil:
		return errors.New(hinted("unknown field "+quote(name), didYouMean(name, slices.Sorted(maps.Keys(lineFields)))))
	case seen[name]:
		return fmt.Errorf("the field %s comes twice", name)
	case name != "args" && string(raw) == "null":
		return fmt.Errorf("%s: is null: leave it out", name)
	}
	seen[name] = true
	if err := read(l, raw); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func notJSON(decoder *json.Decoder, err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("not JSON: it ends at byte %d, too early", decoder.InputOffset())
	}
	return fmt.Errorf("not JSON after byte %d: %w", decoder.InputOffset(), err)
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

// durationField reads text as a flag does, or a number of seconds.
func durationField(raw json.RawMessage, into *time.Duration) error {
	text, seconds := string(raw), 0.0
	if json.Unmarshal(raw, &seconds) == nil {
		text = strconv.FormatFloat(seconds, 'f', -1, 64)
	} else {
		_ = json.Unmarshal(raw, &text) // what is no string stays as it is, and is no duration
	}
	return durationFlag(into).Set(text)
}
