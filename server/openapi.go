package server

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tuskqueue/tusk/server/access"
)

// OpenAPI returns the description of the API, made from the table of routes and
// the types of what they take and give.
func OpenAPI() ([]byte, error) {
	registry := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	doc := &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{Title: "Tusk", Version: "v1", Description: "Task queue and scheduler. Every error is an " +
			"application/problem+json with a stable code. Lists are pages: pass next as cursor to get the one that follows."},
		Servers: []*huma.Server{{URL: "/"}},
		Paths:   map[string]*huma.PathItem{},
		Components: &huma.Components{Schemas: registry, SecuritySchemes: map[string]*huma.SecurityScheme{
			"token": {Type: "http", Scheme: "bearer", Description: "an API token: tusk_…"},
		}},
	}
	errorRef := registry.Schema(reflect.TypeFor[Problem](), true, "Problem")
	for _, r := range Routes() {
		doc.AddOperation(operation(r, registry, errorRef))
	}
	text, err := json.MarshalIndent(doc, "", "  ")
	return append(text, '\n'), err
}

func operation(r Route, registry huma.Registry, errorRef *huma.Schema) *huma.Operation {
	o := &huma.Operation{Method: r.Method, Path: r.Path, Summary: r.Summary, OperationID: operationID(r), Tags: []string{tagOf(r.Path)},
		Extensions: map[string]any{"x-permission": r.Need}, Responses: map[string]*huma.Response{}}
	if r.Need != access.Open {
		o.Security = []map[string][]string{{"token": {}}}
	}
	for _, p := range r.params {
		schema := registry.Schema(p.Type, true, p.Name)
		o.Parameters = append(o.Parameters, &huma.Param{Name: p.Name, In: p.In, Description: p.Doc, Required: p.In == "path", Schema: schema})
	}
	if r.body != nil {
		schema := registry.Schema(r.body, true, operationID(r)+"Body")
		o.RequestBody = &huma.RequestBody{Required: r.body.Kind() != reflect.Pointer, Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}}
	}
	status := statusOfRoute(r)
	ok := &huma.Response{Description: http.StatusText(status)}
	if r.answer != nil && r.answer != reflect.TypeFor[json.RawMessage]() {
		ok.Content = map[string]*huma.MediaType{"application/json": {Schema: registry.Schema(r.answer, true, operationID(r)+"Answer")}}
	}
	o.Responses[strconv.Itoa(status)] = ok
	o.Responses["default"] = &huma.Response{Description: "A problem",
		Content: map[string]*huma.MediaType{"application/problem+json": {Schema: errorRef}}}
	return o
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
	words := strings.FieldsFunc(strings.TrimPrefix(r.Path, "/api/v1"), func(c rune) bool { return strings.ContainsRune("/{}.", c) })
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

func openapi(c *call, _ struct{}) (json.RawMessage, error) { return c.openapi, nil }
