package form

import (
	"encoding/json"
	"errors"
	"testing"
	"time"
)

type inner struct {
	Name string            `json:"name"`
	Many []int             `json:"many"`
	Any  json.RawMessage   `json:"any"`
	At   time.Time         `json:"at"`
	More *inner            `json:"more"`
	Meta map[string]string `json:"meta"`
}

func TestAMistakeIsFoundAtItsPlace(t *testing.T) {
	const full = `{"items":[{"name":"a","many":[1,2],"any":null,"at":"2026-01-31T12:00:00Z",` +
		`"more":{"name":"b"},"meta":{"a":"b"}}]}`
	for text, want := range map[string]Error{
		full:         {},
		` {} `:       {},
		``:           {"", "invalid_json", "not JSON: it ends at byte 0, too early"},
		`{"items":[`: {"", "invalid_json", "not JSON: it ends at byte 10, too early"},
		`{"items":}`: {"", "invalid_json", "not JSON at byte 10: invalid character '}' looking for beginning of value"},
		`{} {}`:      {"", "invalid_json", "not one JSON value: something follows it at byte 4"},
		`null`:       {"", "invalid_value", "is null: want an object"},

		`{"items":{}}`:                      {"items", "invalid_value", "is {}: want a list"},
		`{"items":[3]}`:                     {"items[0]", "invalid_value", "is 3: want an object"},
		`{"items":[null]}`:                  {"items[0]", "invalid_value", "is null: want an object"},
		`{"items":[{"Name":"a"}]}`:          {"items[0]", "unknown_field", `unknown field "Name"; did you mean name?`},
		`{"items":[{},{"zzzzzzz":"a"}]}`:    {"items[1]", "unknown_field", `unknown field "zzzzzzz"`},
		`{"items":[{"name":"a","name":1}]}`: {"items[0]", "duplicate_field", "the field name comes twice"},
		`{"items":[{"name":null}]}`:         {"items[0].name", "null_not_allowed", "is null: leave it out"},
		`{"items":[{"many":[1,2.5]}]}`:      {"items[0].many[1]", "invalid_value", "is 2.5: want a whole number"},

		`{"items":[{"at":{}}]}`:        {"items[0].at", "invalid_value", "is {}: want an instant like 2026-01-31T12:00:00Z"},
		`{"items":[{"meta":{"a":1}}]}`: {"items[0].meta", "invalid_value", `is {"a":1}: want an object of strings`},

		`{"items":[{"more":{"more":{"name":1}}}]}`: {"items[0].more.more.name", "invalid_value", "is 1: want a string"},
	} {
		var doc struct {
			Items []inner `json:"items"`
		}
		err, got := Read([]byte(text), &doc), new(Error)
		if errors.As(err, &got); *got != want {
			t.Errorf("%s: %+v, want %+v", text, *got, want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"items":[{"name":"a","many":[1],"more":{"any":[{}]}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var got, want struct {
			Items []inner `json:"items"`
		}
		if Read(text, &got) == nil && json.Unmarshal(text, &want) != nil {
			t.Errorf("%s: is read, and Go does not", text)
		}
	})
}
