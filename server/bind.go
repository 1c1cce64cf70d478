package server

import (
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/query"
)

// param is one parameter of a route.
type param struct {
	In, Name, Doc string // In: path, query or header
	Type          reflect.Type
	index         []int
}

func paramsOf(t reflect.Type) []param {
	var params []param
	for _, f := range reflect.VisibleFields(t) {
		for _, in := range []string{"path", "query", "header"} {
			if name := f.Tag.Get(in); name != "" && f.Name != "Body" {
				params = append(params, param{In: in, Name: name, Doc: f.Tag.Get("doc"), Type: f.Type, index: f.Index})
			}
		}
	}
	return params
}

// bind fills in the parameters and the body of a route.
func (c *call) bind(in any) error {
	v := reflect.ValueOf(in).Elem()
	values := c.r.URL.Query()
	for name := range values {
		if !slices.ContainsFunc(c.route.params, func(p param) bool { return p.In == "query" && p.Name == name }) {
			return fieldProblem(http.StatusBadRequest, "unknown_parameter", short(name), "is no parameter of this route")
		}
	}
	for _, p := range c.route.params {
		var given []string
		switch p.In {
		case "path":
			given = []string{c.r.PathValue(p.Name)}
		case "query":
			given = values[p.Name]
		default:
			given = c.r.Header.Values(p.Name)
		}
		if len(given) == 0 {
			continue
		}
		if err := set(v.FieldByIndex(p.index), p, given); err != nil {
			return err
		}
	}
	if c.route.body == nil {
		return nil
	}
	body := v.FieldByName("Body")
	if optional := body.Kind() == reflect.Pointer; optional {
		if c.r.ContentLength == 0 {
			return nil
		}
		body.Set(reflect.New(body.Type().Elem()))
		return readBody(c.w, c.r, c.config.MaxBody, body.Interface())
	}
	return readBody(c.w, c.r, c.config.MaxBody, body.Addr().Interface())
}

func set(field reflect.Value, p param, given []string) error {
	text := given[0]
	bad := func(want string) error {
		return fieldProblem(http.StatusBadRequest, "invalid_parameter", p.Name, "want %s", want)
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
	default:
		panic("no such parameter type: " + field.Type().String())
	}
	return nil
}
