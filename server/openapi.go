package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/access"
)

// OpenAPI returns the description of the API, generated from the table of routes and the types of their requests and
// responses.
func OpenAPI() ([]byte, error) {
	d := describeAPI(Routes())
	return d.text, d.err
}

// description is the API's description, and what it requires of the requests of each route.
type description struct {
	text   []byte
	err    error
	bodies map[string]*shape                  // by operation
	params map[string]map[string]*huma.Schema // by operation and name
}

func describeAPI(routes []Route) description {
	registry := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	doc := &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{Title: "Tusk", Version: "v1", Description: "Task queue and scheduler. Every error is an " +
			"application/problem+json with a stable code. Lists are paginated: pass next as cursor for the next page."},
		Servers: []*huma.Server{{URL: "/"}},
		Paths:   map[string]*huma.PathItem{},
		Components: &huma.Components{Schemas: registry, SecuritySchemes: map[string]*huma.SecurityScheme{
			"token": {Type: "http", Scheme: "bearer", Description: "an API token: tusk_…"},
		}},
	}
	errorRef := registry.Schema(reflect.TypeFor[Problem](), true, "Problem")
	doc.Components.Responses = map[string]*huma.Response{"HeadTooLarge": headTooLarge(errorRef)}
	registry.RegisterTypeAlias(reflect.TypeFor[tusk.ID](), reflect.TypeFor[describedID]())
	d := description{bodies: map[string]*shape{}, params: map[string]map[string]*huma.Schema{}}
	described := map[reflect.Type]bool{}
	for _, r := range routes {
		o := operation(r, registry, errorRef)
		doc.AddOperation(o)
		params := map[string]*huma.Schema{}
		for _, p := range o.Parameters {
			params[p.Name] = p.Schema
		}
		if d.params[o.OperationID] = params; r.body != nil {
			describeFields(r.body, operationID(r)+"Body", registry, described)
		}
	}
	for _, s := range registry.Map() {
		neverNull(s)
	}
	for _, r := range routes {
		if r.body != nil {
			d.bodies[operationID(r)] = shapeOf(registry.Schema(r.body, true, operationID(r)+"Body"), registry)
		}
	}
	d.text, d.err = json.MarshalIndent(doc, "", "  ")
	d.text = append(d.text, '\n')
	return d
}

// neverNull says that the fields of an object are left out rather than null.
func neverNull(s *huma.Schema) {
	s.Nullable = false
	for _, field := range s.Properties {
		neverNull(field)
	}
	if s.Items != nil {
		neverNull(s.Items)
	}
	if values, ok := s.AdditionalProperties.(*huma.Schema); ok {
		neverNull(values)
	}
}

// describedID provides the schema of ids.
type describedID struct{}

// Schema implements huma.SchemaProvider.
func (describedID) Schema(huma.Registry) *huma.Schema {
	s := &huma.Schema{Type: huma.TypeString, Format: "uuid"}
	rules["id"](s)
	return s
}

func operation(r Route, registry huma.Registry, errorRef *huma.Schema) *huma.Operation {
	o := &huma.Operation{Method: r.Method, Path: r.Path, Summary: r.Summary, OperationID: operationID(r),
		Tags:       []string{tagOf(r.Path)},
		Extensions: map[string]any{"x-permission": r.Need}, Responses: map[string]*huma.Response{}}
	if r.Need != access.Open {
		o.Security = []map[string][]string{{"token": {}}}
	}
	for _, p := range r.params {
		schema := p.schema(registry)
		o.Parameters = append(o.Parameters, &huma.Param{Name: p.Name, In: p.In, Description: p.Doc, Required: p.In == "path",
			Schema: schema})
	}
	if r.body != nil {
		schema := registry.Schema(r.body, true, operationID(r)+"Body")
		o.RequestBody = &huma.RequestBody{Required: r.body.Kind() != reflect.Pointer,
			Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}}
	}
	if r.Takes {
		bytes := &huma.Schema{Type: huma.TypeString, Format: "binary"}
		o.RequestBody = &huma.RequestBody{Required: true,
			Content: map[string]*huma.MediaType{"application/octet-stream": {Schema: bytes}}}
	}
	status := statusOfRoute(r)
	ok := &huma.Response{Description: http.StatusText(status)}
	if r.answer != nil && r.answer != reflect.TypeFor[json.RawMessage]() {
		ok.Content = map[string]*huma.MediaType{
			"application/json": {Schema: registry.Schema(r.answer, true, operationID(r)+"Answer")}}
	}
	o.Responses[strconv.Itoa(status)] = ok
	if r.Found {
		found := *ok
		found.Description = "Nothing was stored: it existed already"
		o.Responses["200"] = &found
	}
	if r.Gives {
		ok.Content = map[string]*huma.MediaType{"application/json": {Schema: &huma.Schema{}}}
		part := &huma.Schema{Type: huma.TypeString, Format: "binary"}
		o.Responses["206"] = &huma.Response{Description: "The requested range",
			Content: map[string]*huma.MediaType{"application/octet-stream": {Schema: part}}}
	}
	failed := func(text string) *huma.Response { return failure(text, errorRef) }
	o.Responses["default"] = failed("A problem")
	o.Responses["431"] = &huma.Response{Ref: "#/components/responses/HeadTooLarge"}
	if r.Takes {
		o.Responses["413"] = failed(fmt.Sprintf("The part has more than %d bytes, "+
			"or %d parts or %d bytes of yours are not put together",
			tusk.MaxPartBytes, tusk.MaxUnfinishedParts, tusk.MaxUnfinishedBytes))
		o.Responses["429"] = failed(fmt.Sprintf("%d of your uploads are under way, as many as may be", ownUploads))
	}
	return o
}

func failure(text string, errorRef *huma.Schema) *huma.Response {
	return &huma.Response{Description: text,
		Content: map[string]*huma.MediaType{"application/problem+json": {Schema: errorRef}}}
}

func headTooLarge(errorRef *huma.Schema) *huma.Response {
	r := failure(fmt.Sprintf("The headers and the path have more than %d bytes. Beyond %d the answer is plain text",
		maxHead, readHead), errorRef)
	r.Content["text/plain"] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
	return r
}

func statusOfRoute(r Route) int {
	switch {
	case r.Status != 0:
		return r.Status
	case r.answer == nil && !r.Stream:
		return http.StatusNoContent
	default:
		return http.StatusOK
	}
}

func operationID(r Route) string {
	words := strings.FieldsFunc(strings.TrimPrefix(r.Path, "/api/v1"),
		func(c rune) bool { return strings.ContainsRune("/{}.", c) })
	return strings.ToLower(r.Method) + "-" + strings.Join(words, "-")
}

func tagOf(path string) string {
	rest, ok := strings.CutPrefix(path, "/api/v1/")
	if !ok {
		return "server"
	}
	tag, _, _ := strings.Cut(rest, "/")
	return tag
}

func openapi(c *call, _ struct{}) (json.RawMessage, error) {
	return bytes.TrimSuffix(c.description.text, []byte("\n")), nil
}
