package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/tuskqueue/tusk/store"
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
