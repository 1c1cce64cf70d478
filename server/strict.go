package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tuskqueue/tusk/store"
)

// Bounds of what is read of a body, besides its size.
const (
	maxDepth  = 70 // args may have 64 levels, and stand a few deep themselves
	maxTokens = 1 << 20
)

// readBody reads one JSON value into v, and refuses whatever two programs might
// read differently: doubled and unknown fields, other letter case, bad text.
func readBody(w http.ResponseWriter, r *http.Request, limit int64, v any) error {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return problem(http.StatusUnsupportedMediaType, "unsupported_media_type", "want Content-Type: application/json")
	}
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return problem(http.StatusUnsupportedMediaType, "unsupported_encoding", "send the body without Content-Encoding")
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return problem(http.StatusRequestEntityTooLarge, "body_too_large", "the body has more than %d bytes", limit)
	case err != nil:
		return problem(http.StatusBadRequest, "unreadable_body", "the body could not be read to its end")
	}
	return decodeStrict(text, v)
}

func decodeStrict(text []byte, v any) error {
	if !utf8.Valid(text) {
		return problem(http.StatusBadRequest, "invalid_utf8", "the body is not valid UTF-8")
	}
	if err := checkEscapes(text); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	s := scanner{d: d}
	if err := s.value(reflect.TypeOf(v).Elem(), "", 0); err != nil {
		return jsonProblem(err, d.InputOffset())
	}
	if _, err := d.Token(); err != io.EOF {
		return problem(http.StatusBadRequest, "invalid_json", "something follows the JSON value at offset %d", d.InputOffset())
	}
	if err := json.Unmarshal(text, v); err != nil {
		return jsonProblem(err, 0)
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
	case errors.As(err, &kind) && strings.HasPrefix(kind.Value, "number ") && kind.Type.Kind() != reflect.String:
		return fieldProblem(http.StatusBadRequest, "number_out_of_range", kind.Field, "is no number that fits here")
	case errors.As(err, &kind):
		return fieldProblem(http.StatusBadRequest, "invalid_type", kind.Field, "want %s, not %s", nameOfType(kind.Type), kind.Value)
	case errors.As(err, &syntax):
		return problem(http.StatusBadRequest, "invalid_json", "%v at offset %d", syntax, max(syntax.Offset, offset))
	case errors.Is(err, store.ErrBadID):
		return problem(http.StatusBadRequest, "invalid_id", "an id is %v", err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return problem(http.StatusBadRequest, "invalid_json", "the JSON ends too early, at offset %d", offset)
	}
	return problem(http.StatusBadRequest, "invalid_value", "%s", short(err.Error()))
}

func nameOfType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	default:
		return "a number"
	}
}

// scanner walks JSON beside the Go type that it is for.
type scanner struct {
	d      *json.Decoder
	tokens int
}

func (s *scanner) next() (json.Token, error) {
	if s.tokens++; s.tokens > maxTokens {
		return nil, problem(http.StatusBadRequest, "json_too_complex", "the body has more than %d parts", maxTokens)
	}
	return s.d.Token()
}

func (s *scanner) value(t reflect.Type, path string, depth int) error {
	token, err := s.next()
	if err != nil {
		return err
	}
	open, ok := token.(json.Delim)
	if !ok {
		return nil
	}
	if depth == maxDepth {
		return problem(http.StatusBadRequest, "json_too_complex", "the body is nested deeper than %d levels", maxDepth)
	}
	if open == '[' {
		for i := 0; s.d.More(); i++ {
			if err := s.value(elemOf(t), fmt.Sprintf("%s[%d]", path, i), depth+1); err != nil {
				return err
			}
		}
	} else if err := s.object(t, path, depth); err != nil {
		return err
	}
	_, err = s.next()
	return err
}

func (s *scanner) object(t reflect.Type, path string, depth int) error {
	fields := fieldsOf(t)
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
		at := strings.TrimPrefix(path+"."+name, ".")
		if seen[name] {
			return fieldProblem(http.StatusBadRequest, "duplicate_field", short(at), "comes twice")
		}
		seen[name] = true
		var inner reflect.Type
		if fields != nil {
			if inner, ok = fields[name]; !ok {
				return fieldProblem(http.StatusBadRequest, "unknown_field", short(at), "is not known here: want some of %s", namesOf(fields))
			}
		}
		if err := s.value(inner, at, depth+1); err != nil {
			return err
		}
	}
	return nil
}

var rawMessage = reflect.TypeFor[json.RawMessage]()

func elemOf(t reflect.Type) reflect.Type {
	if t = concrete(t); t != nil && t != rawMessage && t.Kind() == reflect.Slice {
		return t.Elem()
	}
	return nil
}

// fieldsOf returns the fields of a struct by their JSON names, and nil for types
// that take any object.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	if t = concrete(t); t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	fields := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || name == "-" || name == "" {
			continue
		}
		fields[name] = f.Type
	}
	return fields
}

func concrete(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

func namesOf(fields map[string]reflect.Type) string {
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// checkEscapes refuses \u0000 and lone surrogates, which not every database can
// store and Go would quietly replace.
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
			return problem(http.StatusBadRequest, "nul_not_allowed", `the character \u0000 is not allowed, at offset %d`, i-1)
		case code >= 0xDC00 && code <= 0xDFFF:
			return problem(http.StatusBadRequest, "invalid_utf8", `lone surrogate at offset %d`, i-1)
		case code >= 0xD800 && code <= 0xDBFF:
			rest := text[min(i+5, len(text)):]
			if low := hex4(bytes.TrimPrefix(rest, []byte(`\u`))); !bytes.HasPrefix(rest, []byte(`\u`)) || low < 0xDC00 || low > 0xDFFF {
				return problem(http.StatusBadRequest, "invalid_utf8", `lone surrogate at offset %d`, i-1)
			}
			i += 6
		}
	}
	return nil
}

// hex4 reads four hexadecimal digits; -1: there are none, which is for the JSON
// decoder to tell.
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

// short keeps what an error quotes of its input short.
func short(text string) string {
	const limit = 64
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}
