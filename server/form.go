package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tuskqueue/tusk/internal/duration"
	"github.com/tuskqueue/tusk/server/query"
)

// The description defines the form of a request. Code that rejects a value says 422 and need not know the
// description. judge then checks whether the request matches the description, and changes the status to 400 if it
// does not. So a 400 always means a request that the description does not allow.
//
// The library that generates the schemas can validate decoded values too. But decoding a body a second time would
// take many times its size in memory, so the body is scanned as text.

// judge returns an error as a problem, with the right status.
func (c *call) judge(err error) *Problem {
	p := problemOf(err)
	if p.Status == http.StatusUnprocessableEntity && !c.formed() {
		p.Status = http.StatusBadRequest
	}
	return p
}

// formed reports whether the description allows the request.
func (c *call) formed() bool {
	id, values := operationID(*c.route), c.r.URL.Query()
	for _, p := range c.route.params {
		of := shapeOf(c.params[id][p.Name], nil)
		if slices.ContainsFunc(c.given(p, values), func(text string) bool { return !of.allowsText(text) }) {
			return false
		}
	}
	return c.text == nil || formed(c.r.Context(), c.text, c.bodies[id])
}

// formed reports whether a shape allows a JSON text.
func formed(ctx context.Context, text []byte, of *shape) bool {
	s := newScanner(ctx, text)
	s.formal = true
	err := s.document(of)
	return err == nil || problemOf(err).Status != http.StatusBadRequest
}

// allowsText reports whether the description allows a parameter's value.
func (s *shape) allowsText(text string) bool {
	if s.items != nil {
		s = s.items
	}
	if slices.Contains(s.kinds, huma.TypeInteger) {
		return s.allows(json.Number(text))
	}
	return utf8.ValidString(text) && s.allows(text)
}

// allows reports whether the description allows a value whose type the shape accepts. It does not look inside arrays
// and objects.
func (s *shape) allows(value json.Token) bool {
	switch {
	case s == nil:
		return true
	case len(s.any) > 0:
		return slices.ContainsFunc(s.any, func(a *shape) bool { return a.takes(kindOf(value)) == nil && a.allows(value) })
	case len(s.choice) > 0 && !slices.Contains(s.choice, any(value)):
		return false
	}
	switch value := value.(type) {
	case string:
		n := utf8.RuneCountInString(value)
		return n >= s.shortest && (s.longest == 0 || n <= s.longest) && (s.pattern == nil || s.pattern.MatchString(value))
	case json.Number:
		return s.allowsNumber(value.String())
	}
	return true
}

// misspelt is the problem for a duration or a time that the description does not allow. The parsers accept more
// spellings, but not all of them for zero.
func (s *shape) misspelt(value json.Token) *Problem {
	code, want := "invalid_duration", duration.Form
	if s.when {
		code, want = "invalid_time", query.Moment
	}
	for _, word := range s.any {
		for _, word := range word.choice {
			want += fmt.Sprintf(", or %v", word)
		}
	}
	return problem(http.StatusBadRequest, code, "want %s, not %q", want, short(fmt.Sprint(value)))
}

func (s *shape) allowsNumber(text string) bool {
	n, err := strconv.ParseFloat(text, 64)
	switch {
	case errors.Is(err, strconv.ErrSyntax), slices.Contains(s.kinds, huma.TypeInteger) && n != math.Trunc(n):
		return false
	}
	return (s.least == nil || n >= *s.least) && (s.most == nil || n <= *s.most)
}

// misread says which field has a value that the description allows but no decoder accepts.
func misread(ctx context.Context, text []byte, of *shape, err error) error {
	s := newScanner(ctx, text)
	s.exact = true
	if located := s.document(of); located != nil {
		return located
	}
	return jsonProblem(err, 0)
}
