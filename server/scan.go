package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tuskqueue/tusk/internal/words"
)

// Limits of a body, in addition to its size.
const (
	maxDepth  = 70 // args may have 64 levels, and are a few levels deep themselves
	maxTokens = 1 << 20
)

// scanner walks through JSON and checks it against a shape. It formats the path to its position only for an error.
type scanner struct {
	ctx    context.Context
	d      *json.Decoder
	tokens int
	path   []step
	whole  []span
	formal bool // also check lengths, patterns, ranges and choices
	exact  bool // also parse texts
}

func newScanner(ctx context.Context, text []byte) *scanner {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return &scanner{ctx: ctx, d: d}
}

// document reads one value of a shape, and rejects anything after it.
func (s *scanner) document(of *shape) error {
	if err := s.value(of); err != nil {
		return s.located(jsonProblem(err, s.d.InputOffset()))
	}
	if _, err := s.d.Token(); err != io.EOF {
		return problem(http.StatusBadRequest, "invalid_json", "something follows the JSON value at offset %d",
			s.d.InputOffset())
	}
	return nil
}

// span is the position and the value of a whole number that is written with a fraction or an exponent, such as 1.0.
type span struct {
	from, to int64
	number   string
}

// rewritten writes whole numbers as Go reads them.
func (s *scanner) rewritten(text []byte) []byte {
	if len(s.whole) == 0 {
		return text
	}
	var out []byte
	last := int64(0)
	for _, w := range s.whole {
		out = append(append(out, text[last:w.from]...), w.number...)
		last = w.to
	}
	return append(out, text[last:]...)
}

// number records a whole number in another notation, if the shape wants an integer.
func (s *scanner) number(of *shape, text string) {
	if of == nil || !slices.Contains(of.kinds, huma.TypeInteger) || !strings.ContainsAny(text, ".eE") {
		return
	}
	if n, err := strconv.ParseFloat(text, 64); err == nil && n == math.Trunc(n) && math.Abs(n) < 1<<53 {
		end := s.d.InputOffset()
		s.whole = append(s.whole, span{end - int64(len(text)), end, strconv.FormatInt(int64(n), 10)})
	}
}

// step is a field, or an item of a list.
type step struct {
	name  string
	index int
}

// located adds the field at which the scanner stopped to a problem.
func (s *scanner) located(err error) error {
	p, ok := err.(*Problem)
	if !ok || len(s.path) == 0 || p.Field != "" {
		return err
	}
	var text strings.Builder
	for _, at := range s.path {
		switch {
		case at.name == "":
			fmt.Fprintf(&text, "[%d]", at.index)
		case text.Len() > 0:
			text.WriteString("." + at.name)
		default:
			text.WriteString(at.name)
		}
		if text.Len() > maxQuoted {
			break
		}
	}
	p.Field = short(text.String())
	return p
}

func (s *scanner) next() (json.Token, error) {
	if s.tokens++; s.tokens > maxTokens {
		return nil, problem(http.StatusUnprocessableEntity, "json_too_complex", "the body has more than %d parts", maxTokens)
	}
	if s.tokens%4096 == 0 && s.ctx.Err() != nil {
		return nil, s.ctx.Err()
	}
	return s.d.Token()
}

func (s *scanner) value(of *shape) error {
	token, err := s.next()
	if err != nil {
		return err
	}
	if p := of.takes(kindOf(token)); p != nil {
		return p
	}
	if of != nil && len(of.any) > 0 && !of.allows(token) {
		return of.misspelt(token)
	}
	if s.formal && !of.allows(token) {
		return problem(http.StatusBadRequest, "invalid_value", "is not as the description says")
	}
	if word, ok := token.(string); ok && s.exact && of != nil && of.reads != nil {
		if err := of.reads([]byte(word)); err != nil {
			return err
		}
	}
	if n, ok := token.(json.Number); ok {
		s.number(of, n.String())
	}
	open, ok := token.(json.Delim)
	if !ok {
		return nil
	}
	if len(s.path) == maxDepth {
		return problem(http.StatusUnprocessableEntity, "json_too_complex", "the body is nested deeper than %d levels",
			maxDepth)
	}
	if open == '[' {
		err = s.list(of)
	} else {
		err = s.object(of)
	}
	if err != nil {
		return err
	}
	_, err = s.next()
	return err
}

func kindOf(token json.Token) string {
	switch token := token.(type) {
	case string:
		return huma.TypeString
	case bool:
		return huma.TypeBoolean
	case nil:
		return "null"
	case json.Delim:
		if token == '[' {
			return huma.TypeArray
		}
		return huma.TypeObject
	default:
		return huma.TypeNumber
	}
}

// inside reads the value at a step of the path. After an error the path stays.
func (s *scanner) inside(at step, of *shape) error {
	s.path = append(s.path, at)
	if err := s.value(of); err != nil {
		return err
	}
	s.path = s.path[:len(s.path)-1]
	return nil
}

func (s *scanner) list(of *shape) error {
	var items *shape
	if of != nil {
		items = of.items
	}
	n := 0
	for ; s.d.More(); n++ {
		if p := of.holds(n+1, false, "item"); p != nil {
			return p
		}
		if err := s.inside(step{index: n}, items); err != nil {
			return err
		}
	}
	if p := of.holds(n, true, "item"); p != nil {
		return p
	}
	return nil
}

func (s *scanner) object(of *shape) error {
	seen := map[string]bool{}
	for s.d.More() {
		token, err := s.next()
		if err != nil {
			return err
		}
		name, ok := token.(string)
		if !ok {
			return io.ErrUnexpectedEOF
		}
		inner, err := s.field(of, name, seen)
		if s.formal && err == nil && of != nil && !of.names.allows(name) {
			err = problem(http.StatusBadRequest, "invalid_value", "is not named as the description says")
		}
		if err != nil {
			s.path = append(s.path, step{name: name})
			return err
		}
		if err := s.inside(step{name: name}, inner); err != nil {
			return err
		}
	}
	if of == nil {
		return nil
	}
	for _, name := range of.required {
		if !seen[name] {
			s.path = append(s.path, step{name: name})
			return problem(http.StatusBadRequest, "missing_field", "is missing")
		}
	}
	if p := of.holds(len(seen), true, "field"); p != nil {
		return p
	}
	return nil
}

// field returns the shape that a field of an object must have.
func (s *scanner) field(of *shape, name string, seen map[string]bool) (*shape, error) {
	if seen[name] {
		return nil, problem(http.StatusBadRequest, "duplicate_field", "comes twice")
	}
	seen[name] = true
	switch {
	case of == nil:
		return nil, nil
	case of.fields == nil:
		if p := of.holds(len(seen), false, "field"); p != nil {
			return nil, p
		}
		return of.values, nil
	}
	inner, known := of.fields[name]
	if !known {
		names := slices.Sorted(maps.Keys(of.fields))
		want := "want some of " + strings.Join(names, ", ")
		if len(names) == 0 {
			want = "this takes no fields, leave the body out"
		}
		return nil, problem(http.StatusBadRequest, "unknown_field", "is not known here: %s",
			words.Hinted(want, name, names))
	}
	return inner, nil
}
