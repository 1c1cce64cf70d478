package server

import (
	"cmp"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tuskqueue/tusk"
)

// A shape is a compiled OpenAPI schema. It is made from the description itself, so that the two cannot differ. A body
// is read together with its shape, which says which types, required fields and lengths of lists it must have. All
// other checks are left to the code that uses the value and can give better errors; form.go asks the shape when that
// code rejects a value. A nil shape accepts any JSON.
type shape struct {
	kinds    []string // of JSON: string, number, integer, boolean, array, object
	fields   map[string]*shape
	required []string
	items    *shape // of an array
	values   *shape // of an object without fixed fields
	min, max int    // items of an array, or fields of an object; max 0 means no limit

	any               []*shape // at least one of them describes the value: a duration or a time
	when              bool     // it is a time, or how long ago
	names             *shape   // of the field names of an object without fixed fields
	choice            []any
	pattern           *regexp.Regexp // nil means any text
	shortest, longest int            // characters of a text; longest 0 means no limit
	least, most       *float64       // of a number; nil means no limit

	// Parses a text that has a meaning. Nil if only the pattern matters.
	reads func(text []byte) error
}

// shapeOf compiles a schema.
func shapeOf(s *huma.Schema, registry huma.Registry) *shape {
	if s.Ref != "" {
		s = registry.SchemaFromRef(s.Ref)
	}
	out := &shape{required: s.Required, choice: s.Enum, pattern: patternOf(s), shortest: number(s.MinLength),
		longest: number(s.MaxLength),
		least:   s.Minimum, most: s.Maximum, reads: readerOf(s)}
	for _, alternative := range s.AnyOf {
		out.kinds = append(out.kinds, alternative.Type)
		out.any = append(out.any, shapeOf(alternative, registry))
		out.when = out.when || alternative.Format == "date-time"
	}
	switch s.Type {
	case "":
		if len(out.kinds) == 0 {
			return nil
		}
	case huma.TypeArray:
		out.items, out.min, out.max = shapeOf(s.Items, registry), number(s.MinItems), number(s.MaxItems)
	case huma.TypeObject:
		out.min, out.max = number(s.MinProperties), number(s.MaxProperties)
		if values, ok := s.AdditionalProperties.(*huma.Schema); ok {
			out.values = shapeOf(values, registry)
			if names, ok := s.Extensions["propertyNames"].(*huma.Schema); ok {
				out.names = shapeOf(names, registry)
			}
			break
		}
		out.fields = map[string]*shape{}
		for name, field := range s.Properties {
			out.fields[name] = shapeOf(field, registry)
		}
	}
	if s.Type != "" {
		out.kinds = append(out.kinds, s.Type)
	}
	return out
}

// readerOf returns the function that parses the text of a schema, as the schema's type does.
func readerOf(s *huma.Schema) func([]byte) error {
	switch {
	case s.Format == "date-time":
		return new(Instant).UnmarshalText
	case s.Pattern == "^("+idPattern+")$":
		return new(tusk.ID).UnmarshalText
	case len(s.AnyOf) > 0 && s.AnyOf[0].Pattern == "^("+durationPattern+")$":
		if len(s.AnyOf[len(s.AnyOf)-1].Enum) > 0 {
			return new(Keeping).UnmarshalText
		}
		return new(Duration).UnmarshalText
	}
	return nil
}

func number(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

// patterns has the compiled patterns of the description.
var patterns sync.Map

// formats are patterns for formats without a pattern.
var formats = map[string]string{
	"date":      `^[0-9]{4}-[0-9]{2}-[0-9]{2}$`,
	"date-time": `^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})$`,
}

func patternOf(s *huma.Schema) *regexp.Regexp {
	pattern := cmp.Or(s.Pattern, formats[s.Format])
	if pattern == "" {
		return nil
	}
	known, ok := patterns.Load(pattern)
	if !ok {
		known, _ = patterns.LoadOrStore(pattern, regexp.MustCompile(pattern))
	}
	return known.(*regexp.Regexp)
}

// takes checks the type of a value.
func (s *shape) takes(kind string) *Problem {
	switch {
	case s == nil, slices.Contains(s.kinds, kind), kind == huma.TypeNumber && slices.Contains(s.kinds, huma.TypeInteger):
		return nil
	case kind == "null":
		return problem(http.StatusBadRequest, "null_not_allowed", "is null: give a value, or leave it out")
	}
	wanted := make([]string, len(s.kinds))
	for i, k := range s.kinds {
		wanted[i] = kindNames[k]
	}
	return problem(http.StatusBadRequest, "invalid_type", "want %s, not %s", strings.Join(wanted, " or "), kindNames[kind])
}

var kindNames = map[string]string{"string": "text", "number": "a number", "integer": "a whole number",
	"boolean": "true or false",
	"array":   "a list", "object": "an object"}

// holds checks the number of items or fields of a value. If there are too many, it can be called at the first one too
// many.
func (s *shape) holds(n int, ended bool, what string) *Problem {
	switch {
	case s == nil:
		return nil
	case ended && n < s.min:
		return problem(http.StatusBadRequest, "missing_field", "has %s, want %d or more", count(n, what), s.min)
	case s.max > 0 && n > s.max:
		return problem(http.StatusRequestEntityTooLarge, "batch_too_large", "has more than %s", count(s.max, what))
	}
	return nil
}

func count(n int, what string) string {
	switch n {
	case 0:
		return "no " + what + "s"
	case 1:
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
