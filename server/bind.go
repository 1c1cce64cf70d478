package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/duration"
	"github.com/tuskqueue/tusk/internal/words"
	"github.com/tuskqueue/tusk/server/query"
)

// param is a parameter of a route.
type param struct {
	In, Name, Doc string // In: path, query or header
	Type          reflect.Type
	field         reflect.StructField
	index         []int
}

// schema describes the parameter.
func (p param) schema(registry huma.Registry) *huma.Schema {
	f := p.field
	if f.Type == reflect.TypeFor[time.Time]() {
		return whenSchema(p.Doc)
	}
	s := huma.SchemaFromField(registry, f, p.Name)
	if rule := f.Tag.Get("rule"); rule != "" {
		describe(s, rule)
	}
	neverNull(s)
	return s
}

// whenSchema describes a time, or how long ago it was.
func whenSchema(doc string) *huma.Schema {
	ago := &huma.Schema{Type: huma.TypeString, Description: "how long ago"}
	text(1, 64, spanPattern)(ago)
	return &huma.Schema{Description: doc, Examples: []any{"2026-01-31T12:00:00Z", "24h", "7d"},
		AnyOf: []*huma.Schema{{Type: huma.TypeString, Format: "date-time"}, {Type: huma.TypeString, Format: "date"}, ago}}
}

func paramsOf(t reflect.Type) []param {
	var params []param
	for _, f := range reflect.VisibleFields(t) {
		for _, in := range []string{"path", "query", "header"} {
			if name := f.Tag.Get(in); name != "" && f.Name != "Body" {
				params = append(params, param{In: in, Name: name, Doc: f.Tag.Get("doc"), Type: f.Type, field: f, index: f.Index})
			}
		}
	}
	return params
}

// bind fills in the parameters and the body of a route.
func (c *call) bind(in any) error {
	v := reflect.ValueOf(in).Elem()
	values := c.r.URL.Query()
	var known []string
	once := c.r.Method != http.MethodPost || len(c.r.Header.Values(onceHeader)) == 0 ||
		c.r.Header.Get("Tusk-Task-Id") != "" // a task of kind http always sends the key
	for _, p := range c.route.params {
		if p.In == "query" {
			known = append(known, p.Name)
		}
		once = once || p.Name == onceHeader
	}
	if !once { // the client would repeat the request, and rely on the key
		here := "a repeated request is carried out again"
		if strings.HasPrefix(c.route.Path, "/api/v1/lease/") {
			here = "leave it out, the end of a lease is recognized by its lease_id if it is repeated"
		}
		return fieldProblem(http.StatusBadRequest, "invalid_header", onceHeader,
			"is only for POST /api/v1/tasks and /api/v1/tasks/batch: here, %s", here)
	}
	for name := range values {
		if !slices.Contains(known, name) {
			return fieldProblem(http.StatusBadRequest, "unknown_parameter", short(name), "%s",
				words.Hinted("is no parameter of this route", name, known))
		}
	}
	asked := c.params[operationID(*c.route)]
	for _, p := range c.route.params {
		given := c.given(p, values)
		if len(given) == 0 {
			if asked[p.Name].Default == nil {
				continue
			}
			given = []string{fmt.Sprint(asked[p.Name].Default)}
		}
		if err := fits(p, asked[p.Name], given); err != nil {
			return err
		}
		// A GET with an impossible name finds nothing, but nothing may be changed under such a name.
		if p.In == "path" && p.field.Tag.Get("rule") == "name" && c.r.Method != http.MethodGet {
			if err := tusk.ValidateName(p.Name, given[0]); err != nil {
				return err
			}
		}
		if err := set(v.FieldByIndex(p.index), p, given); err != nil {
			return err
		}
	}
	if c.route.Takes {
		return nil
	}
	if c.route.body == nil {
		return c.refuseBody()
	}
	body := v.FieldByName("Body")
	if optional := body.Kind() == reflect.Pointer; optional {
		if c.hasNoBody() {
			return nil
		}
		body.Set(reflect.New(body.Type().Elem()))
	} else {
		body = body.Addr()
	}
	return c.readBody(c.bodies[operationID(*c.route)], body.Interface())
}

// refuseBody refuses a body with content if the route takes none, because the client would think that it had an
// effect. An empty object is accepted, because some clients always send one.
func (c *call) refuseBody() error {
	if c.hasNoBody() {
		return nil
	}
	return c.readBody(&shape{kinds: []string{huma.TypeObject}, fields: map[string]*shape{}}, &struct{}{})
}

// hasNoBody reports whether nothing follows the headers. If the headers do not say, it reads the first byte.
func (c *call) hasNoBody() bool {
	if c.r.ContentLength >= 0 {
		return c.r.ContentLength == 0
	}
	from, first := c.r.Body, make([]byte, 1)
	n, err := io.ReadFull(from, first)
	c.r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(first[:n]), from), from}
	return err == io.EOF
}

// given returns the values that a request has for a parameter.
func (c *call) given(p param, query url.Values) []string {
	switch p.In {
	case "path":
		return []string{c.r.PathValue(p.Name)}
	case "query":
		return query[p.Name]
	default:
		return c.r.Header.Values(p.Name)
	}
}

// fits rejects a parameter that the description does not allow: text that is not one of the choices, numbers out of
// range, repeated values, bad characters. Whether a name exists is for the route to find out.
func fits(p param, asked *huma.Schema, given []string) error {
	bad := func(code, text string, args ...any) error {
		return fieldProblem(http.StatusBadRequest, code, p.Name, text, args...)
	}
	if asked.Type != huma.TypeArray && len(given) > 1 {
		return bad("duplicate_parameter", "is given more than once")
	}
	if asked.MaxItems != nil && len(given) > *asked.MaxItems {
		return bad("filter_too_complex", "has more than %d values", *asked.MaxItems)
	}
	for _, text := range given {
		if err := query.Text(p.Name, text); err != nil {
			return err
		}
		if of := shapeOf(asked, nil); len(of.any) > 0 && !of.allowsText(text) {
			problem := of.misspelt(text)
			problem.Field = p.Name
			return problem
		}
		n, err := strconv.ParseFloat(text, 64)
		switch {
		case p.In == "header" && text == "" && asked.MinLength != nil && *asked.MinLength > 0:
			return bad("invalid_header", "is empty: give it a value, or leave it out")
		case p.In == "header" && len(text) > *asked.MaxLength:
			return bad("invalid_header", "has more than %d bytes", *asked.MaxLength)
		case p.In == "header" && !regexp.MustCompile(asked.Pattern).MatchString(text):
			return bad("invalid_header", "want %s", asked.Pattern)
		case len(asked.Enum) > 0 && !slices.Contains(asked.Enum, any(text)):
			return bad("invalid_parameter", "want %s", words.Either(asked.Enum))
		case asked.Minimum != nil && err == nil && (n < *asked.Minimum || n > *asked.Maximum):
			return bad("out_of_range", "want %.0f to %.0f", *asked.Minimum, *asked.Maximum)
		}
	}
	return nil
}

func set(field reflect.Value, p param, given []string) error {
	text := given[0]
	bad := func(want string) error {
		return fieldProblem(http.StatusUnprocessableEntity, "invalid_parameter", p.Name, "want %s", want)
	}
	switch to := field.Addr().Interface().(type) {
	case *string:
		*to = text
	case *[]string:
		*to = given
	case *int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return bad("a whole number")
		}
		*to = n
	case *tusk.ID:
		id, err := tusk.ParseID(text)
		if err != nil && text == (tusk.ID{}).String() {
			err = tusk.ErrNotFound // it is a valid id that nothing has
		}
		if invalid := (*tusk.InvalidError)(nil); errors.As(err, &invalid) {
			return fieldProblem(http.StatusUnprocessableEntity, invalid.Code, p.Name, "%s", invalid.Text)
		}
		if err != nil {
			return err
		}
		*to = id
	case *time.Time:
		t, err := query.Instant(p.Name, text, time.Now())
		if err != nil {
			return err
		}
		*to = t
	case *Duration:
		d, err := duration.Parse(text)
		if err != nil {
			return fieldProblem(http.StatusUnprocessableEntity, "invalid_duration", p.Name, "%q: %v", short(text), err)
		}
		*to = Duration(d)
	default:
		panic("no such parameter type: " + field.Type().String())
	}
	return nil
}
