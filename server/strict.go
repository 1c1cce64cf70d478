package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"mime"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tuskqueue/tusk/internal/words"
	"github.com/tuskqueue/tusk/store"
)

// Limits of a body, in addition to its size.
const (
	maxDepth  = 70 // args may have 64 levels, and are a few levels deep themselves
	maxTokens = 1 << 20
)

// readBody reads one JSON value of a shape into v. It rejects everything that two programs might read differently:
// duplicate and unknown fields, other letter case, invalid text.
func (c *call) readBody(of *shape, v any) error {
	w, r, limit := c.w, c.r, c.config.MaxBody
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return problem(http.StatusUnsupportedMediaType, "unsupported_media_type", "want Content-Type: application/json")
	}
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return problem(http.StatusUnsupportedMediaType, "unsupported_encoding", "send the body without Content-Encoding")
	}
	if r.ContentLength > limit {
		return problem(http.StatusRequestEntityTooLarge, "body_too_large", "the body has more than %d bytes", limit)
	}
	text, err := c.receive(http.MaxBytesReader(w, r.Body, limit))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, new(*Problem)):
		return err
	case errors.As(err, &large):
		return problem(http.StatusRequestEntityTooLarge, "body_too_large", "the body has more than %d bytes", limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return problem(http.StatusRequestTimeout, "body_too_slow", "the body took too long to arrive: send it again")
	case err != nil:
		return problem(http.StatusBadRequest, "unreadable_body", "the body could not be read to its end")
	}
	c.text = text
	if err := c.work(); err != nil {
		return err
	}
	return decodeStrict(r.Context(), text, of, v)
}

func decodeStrict(ctx context.Context, text []byte, of *shape, v any) error {
	if !utf8.Valid(text) {
		return problem(http.StatusBadRequest, "invalid_utf8", "the body is not valid UTF-8")
	}
	if err := checkEscapes(text); err != nil {
		return err
	}
	s := newScanner(ctx, text)
	if err := s.document(of); err != nil {
		return err
	}
	if err := json.Unmarshal(s.rewritten(text), v); err != nil {
		return misread(ctx, text, of, err)
	}
	return nil
}

func jsonProblem(err error, offset int64) error {
	var p *Problem
	var kind *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &kind):
		return fieldProblem(http.StatusUnprocessableEntity, "number_out_of_range", kind.Field, "%s", fitting(kind.Type))
	case errors.As(err, &syntax):
		return problem(http.StatusBadRequest, "invalid_json", "%v at offset %d", syntax, max(syntax.Offset, offset))
	case errors.Is(err, store.ErrBadID):
		return problem(http.StatusUnprocessableEntity, "invalid_id", "an id is %v", err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return problem(http.StatusBadRequest, "invalid_json", "the JSON ends too early, at offset %d", offset)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return problem(http.StatusRequestTimeout, "body_too_slow", "the body could not be read in time: send less at once")
	}
	return problem(http.StatusUnprocessableEntity, "invalid_value", "%s", short(err.Error()))
}

// fitting describes the numbers that a type can hold.
func fitting(t reflect.Type) string {
	if !reflect.Zero(t).CanInt() {
		return "is no number that fits here"
	}
	most := int64(1)<<(t.Bits()-1) - 1
	return fmt.Sprintf("want a whole number from %d to %d", -most-1, most)
}

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

// checkEscapes rejects \u0000 and lone surrogates, which not every database can store and which Go would replace
// silently.
func checkEscapes(text []byte) error {
	for i := 0; i+1 < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		i++
		if text[i] != 'u' {
			continue
		}
		switch code := hex4(text[i+1:]); {
		case code == 0:
			return problem(http.StatusUnprocessableEntity, "nul_not_allowed",
				`the character \u0000 is not allowed, at offset %d`, i-1)
		case code >= 0xDC00 && code <= 0xDFFF:
			return problem(http.StatusUnprocessableEntity, "invalid_utf8", `lone surrogate at offset %d`, i-1)
		case code >= 0xD800 && code <= 0xDBFF:
			rest := text[min(i+5, len(text)):]
			if low := hex4(bytes.TrimPrefix(rest, []byte(`\u`))); !bytes.HasPrefix(rest, []byte(`\u`)) || low < 0xDC00 ||
				low > 0xDFFF {
				return problem(http.StatusUnprocessableEntity, "invalid_utf8", `lone surrogate at offset %d`, i-1)
			}
			i += 6
		}
	}
	return nil
}

// hex4 reads four hexadecimal digits. It returns -1 if there are none, which the JSON decoder will report.
func hex4(digits []byte) (code int) {
	if len(digits) < 4 {
		return -1
	}
	for _, c := range digits[:4] {
		n := strings.IndexByte("0123456789abcdef", c|0x20)
		if n < 0 {
			return -1
		}
		code = code<<4 | n
	}
	return code
}

const maxQuoted = 64

// short shortens input that an error quotes.
func short(text string) string {
	if len(text) <= maxQuoted {
		return text
	}
	return strings.ToValidUTF8(text[:maxQuoted], "") + "…"
}
