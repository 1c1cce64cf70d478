package server

import (
	"encoding/json"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/query"
)

// FuzzBody reads bodies from strangers. An accepted value is plain JSON and means the same to the next reader.
func FuzzBody(f *testing.F) {
	for _, text := range []string{`{"name":"a","args":{"x":[1,2.50]},"delay":"5m","at":"2026-01-31T12:00:00Z"}`,
		`{"name":"a","name":"b"}`, `{"Name":"a"}`, `{"args":"\ud800"}`, `[]`, `null`,
		`{"args":` + strings.Repeat("[", 80) + strings.Repeat("]", 80) + `}`, "\xff", `{"n":1e400}`, `{}{}`, "\ufeff{}",
		`{"tags":[null]}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var body struct {
			Name  string          `json:"name"`
			N     int             `json:"n"`
			Tags  []string        `json:"tags"`
			Args  json.RawMessage `json:"args"`
			Delay Duration        `json:"delay"`
			At    *Instant        `json:"at"`
		}
		registry := huma.NewMapRegistry("#/", huma.DefaultSchemaNamer)
		of := shapeOf(registry.Schema(reflect.TypeOf(body), true, "body"), registry)
		if decodeStrict(t.Context(), text, of, &body) != nil {
			return
		}
		if !utf8.Valid(text) || !json.Valid(text) || body.Delay < 0 {
			t.Fatalf("taken: %q", text)
		}
	})
}

// FuzzCursor reads cursors from strangers. A cursor never fits another query.
func FuzzCursor(f *testing.F) {
	q := query.Tasks{Queue: []string{"mail"}}
	f.Add(newCursor(q, tusk.NewID()), "state=running")
	f.Add("", "")
	f.Add("AAAA", "queue=mail")
	f.Fuzz(func(t *testing.T, text, raw string) {
		values, err := url.ParseQuery(raw)
		if err != nil {
			return
		}
		of := query.FromValues(values)
		last, err := readCursor(of, text)
		if err != nil || text == "" {
			return
		}
		if again, err := readCursor(of, newCursor(of, last)); err != nil || again != last {
			t.Fatalf("%q of %q: %v, %v", text, raw, again, err)
		}
	})
}
