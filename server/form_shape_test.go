package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
)

// TestAShapeAllowsWhatItsSchemaAllows compares shapes with the validator of the library that makes the schemas, for
// many texts and numbers that a body may contain.
func TestAShapeAllowsWhatItsSchemaAllows(t *testing.T) {
	texts := []string{"", "a", "a.b", "a..b", "A", "A B", "a b", "ä", "a\n", "a\x00", "a\u202e", "*", "shop.*",
		strings.Repeat("a", 64), strings.Repeat("a", 65), strings.Repeat("ä", 255), strings.Repeat("a", 256),
		strings.Repeat("a", 3000), "0", "90s", "1h30m", "-5m", "100000h", "99999h", "forever", "2026-01-31T12:00:00Z",
		"2026-01-31T12:00:00.123+02:00", "2026-01-31T12:00:00", "2026-01-31", "tomorrow",
		"0199f000-0000-7000-8000-000000000000", "0199f000-0000-7000-8000-00000000000g",
		"0199f000-0000-7000-8000-000000000000.0199f00000007000800000000000000a", "https://example.com/x", "ftp://example.com",
		"ops@example.com",
		"cancel", "skip", "exponential", "available", "task.discarded", "viewer", "minute", "sliding_window"}
	numbers := []string{"0", "-1", "0.5", "1", "1.0", "2", "100", "101", "1000", "1001", "1000000", "1000001", "-32768",
		"-32769", "32767", "32768", "9e9", "1e10", "1e300"}
	registry := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	described := map[reflect.Type]bool{}
	compared := 0
	compare := func(at string, s *huma.Schema) {
		s.PrecomputeMessages()
		for _, a := range s.AnyOf {
			a.PrecomputeMessages()
		}
		of := shapeOf(s, registry)
		try := func(token json.Token) {
			var verdict huma.ValidateResult
			huma.Validate(registry, s, huma.NewPathBuffer(nil, 0), huma.ModeWriteToServer, token, &verdict)
			if got, want := of.takes(kindOf(token)) == nil && of.allows(token), len(verdict.Errors) == 0; got != want {
				t.Errorf("%s: %.80v: allowed: %v, by its schema: %v %v", at, token, got, want, verdict.Errors)
			}
			compared++
		}
		for _, text := range texts {
			try(text)
		}
		for _, n := range numbers {
			try(json.Number(n))
		}
	}
	var walk func(at string, s *huma.Schema, seen map[string]bool)
	walk = func(at string, s *huma.Schema, seen map[string]bool) {
		if s.Ref != "" {
			if seen[s.Ref] {
				return
			}
			seen[s.Ref] = true
			s = registry.SchemaFromRef(s.Ref)
		}
		for name, field := range s.Properties {
			walk(at+"."+name, field, seen)
		}
		if s.Items != nil {
			walk(at+"[]", s.Items, seen)
		}
		if values, ok := s.AdditionalProperties.(*huma.Schema); ok {
			walk(at+"{}", values, seen)
		}
		if s.Type == huma.TypeString || s.Type == huma.TypeInteger || s.Type == huma.TypeNumber || len(s.AnyOf) > 0 {
			compare(at, s)
		}
	}
	for _, r := range Routes() {
		if r.body == nil {
			continue
		}
		hint := operationID(r) + "Body"
		registry.Schema(r.body, true, hint)
		describeFields(r.body, hint, registry, described)
		walk(r.Method+" "+r.Path, registry.Schema(r.body, true, hint), map[string]bool{})
	}
	if compared < 5000 {
		t.Errorf("only %d values were compared", compared)
	}
}

// TestFormedLooksAtAllOfABody puts values that a schema forbids at every depth.
func TestFormedLooksAtAllOfABody(t *testing.T) {
	type inner struct {
		Name string `json:"name,omitempty" maxLength:"3"`
	}
	var body struct {
		List  []inner          `json:"list,omitempty"`
		Map   map[string]inner `json:"map,omitempty"`
		Args  json.RawMessage  `json:"args,omitempty"`
		Count int              `json:"count,omitempty" minimum:"1" maximum:"3"`
	}
	registry := huma.NewMapRegistry("#/", huma.DefaultSchemaNamer)
	of := shapeOf(registry.Schema(reflect.TypeOf(body), true, "body"), registry)
	for text, want := range map[string]bool{
		`{}`: true, `{"args":{"name":"long","list":[{"name":"long"}]}}`: true,
		`{"list":[{"name":"abc"}],"map":{"x":{"name":"abc"}},"count":3}`: true,
		`{"list":[{"name":"abc"},{"name":"long"}]}`:                      false, `{"map":{"x":{"name":"long"}}}`: false,
		`{"count":4}`: false, `{"count":1.5}`: false,
		`{"list":[{"name":"abc"}`: false, `{}{}`: false, `{"args":"\u0000"}`: true,
		`{"args":` + fmt.Sprint(strings.Repeat("[", 80), strings.Repeat("]", 80)) + `}`: true,
	} {
		if got := formed(t.Context(), bytes.Clone([]byte(text)), of); got != want {
			t.Errorf("%.80s: %v", text, got)
		}
	}
}
