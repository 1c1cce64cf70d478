// Package form decodes JSON into Go types. It reports where a mistake is, what is expected, and
// which field was probably meant.
package form

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/internal/words"
)

// Error is a mistake in a JSON text.
type Error struct {
	Place string // such as stages[2].backoff; empty means the whole text
	Code  string // invalid_json, unknown_field, duplicate_field, null_not_allowed or invalid_value
	Text  string
}

func (e *Error) Error() string {
	if e.Place == "" {
		return e.Text
	}
	return e.Place + ": " + e.Text
}

// at adds the enclosing place to the place of an error.
func at(place string, err error) error {
	var e *Error
	if !errors.As(err, &e) {
		e = &Error{Code: "invalid_value", Text: err.Error()}
	}
	inner := e.Place
	if inner != "" && inner[0] != '[' {
		inner = "." + inner
	}
	return &Error{place + inner, e.Code, e.Text}
}

// Read decodes a text into what v points at. It refuses fields that v does not have. Types with an
// UnmarshalJSON use that, except structs: Read decodes their fields itself if the text is an object.
func Read(text []byte, v any) error {
	if err := One(text); err != nil {
		return err
	}
	return read(text, reflect.ValueOf(v).Elem())
}

// One checks that a text is exactly one JSON value.
func One(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	var whole json.RawMessage
	if err := d.Decode(&whole); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return &Error{Code: "invalid_json", Text: fmt.Sprintf("not JSON at byte %d: %v", syntax.Offset, err)}
		}
		return &Error{Code: "invalid_json", Text: fmt.Sprintf("not JSON: it ends at byte %d, too early", len(text))}
	}
	if _, err := d.Token(); err != io.EOF {
		return &Error{Code: "invalid_json", Text: fmt.Sprintf("not one JSON value: something follows it at byte %d",
			d.InputOffset())}
	}
	return nil
}

// Object calls member for each field of an object that One has checked. It refuses fields that
// occur twice, that are not in names, or that are null unless keeps reports that null has a meaning
// there.
func Object(
	text []byte, names []string, keeps func(name string) bool, member func(string, json.RawMessage) error,
) error {
	d := json.NewDecoder(bytes.NewReader(text))
	_, _ = d.Token()
	seen := map[string]bool{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return err
		}
		name := token.(string) // in an object this is always a string
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return err
		}
		switch {
		case !slices.Contains(names, name):
			text := fmt.Sprintf("unknown field %q", shown(name))
			return &Error{Code: "unknown_field", Text: words.Hinted(text, name, names)}
		case seen[name]:
			return &Error{Code: "duplicate_field", Text: "the field " + name + " comes twice"}
		case string(raw) == "null" && !keeps(name):
			return &Error{name, "null_not_allowed", "is null: leave it out"}
		}
		seen[name] = true
		if err := member(name, raw); err != nil {
			return at(name, err)
		}
	}
	return nil
}

var (
	anyJSON = reflect.TypeFor[json.RawMessage]()
	instant = reflect.TypeFor[time.Time]()
	itself  = reflect.TypeFor[json.Unmarshaler]()
)

func read(text []byte, v reflect.Value) error {
	text = bytes.TrimSpace(text)
	t := v.Type()
	switch {
	case t == anyJSON:
		v.SetBytes(bytes.Clone(text))
		return nil
	case t == instant:
		return plain(text, v, "an instant like 2026-01-31T12:00:00Z")
	case t.Kind() == reflect.Pointer:
		v.Set(reflect.New(t.Elem()))
		return read(text, v.Elem())
	case t.Kind() == reflect.Struct && text[0] == '{':
		return members(text, v)
	case reflect.PointerTo(t).Implements(itself):
		return json.Unmarshal(text, v.Addr().Interface())
	case t.Kind() == reflect.Slice && text[0] == '[':
		return items(text, v)
	}
	return plain(text, v, wanted(t))
}

func members(text []byte, v reflect.Value) error {
	fields := map[string]int{}
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		fields[name] = i
	}
	keeps := func(name string) bool { return v.Field(fields[name]).Type() == anyJSON }
	return Object(text, slices.Sorted(maps.Keys(fields)), keeps, func(name string, raw json.RawMessage) error {
		return read(raw, v.Field(fields[name]))
	})
}

func items(text []byte, v reflect.Value) error {
	var raws []json.RawMessage
	if err := json.Unmarshal(text, &raws); err != nil {
		return err
	}
	v.Set(reflect.MakeSlice(v.Type(), len(raws), len(raws)))
	for i, raw := range raws {
		if err := read(raw, v.Index(i)); err != nil {
			return at(fmt.Sprintf("[%d]", i), err)
		}
	}
	return nil
}

// plain decodes a value that has no fields or elements to check.
func plain(text []byte, v reflect.Value, want string) error {
	if err := json.Unmarshal(text, v.Addr().Interface()); err != nil || string(text) == "null" {
		return &Error{Code: "invalid_value", Text: fmt.Sprintf("is %s: want %s", shown(string(text)), want)}
	}
	return nil
}

func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Float64:
		return "a number"
	case reflect.Map:
		return "an object of strings"
	case reflect.Slice:
		return "a list"
	case reflect.Struct:
		return "an object"
	case reflect.Int16:
		return "a whole number from -32768 to 32767"
	default:
		return "a whole number"
	}
}

const longest = 64

// shown shortens text that an error quotes.
func shown(text string) string {
	if len(text) <= longest {
		return text
	}
	return strings.ToValidUTF8(text[:longest], "") + "…"
}
