package server

import (
	"cmp"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/server/push"
	"github.com/tuskqueue/tusk/server/query"
	"github.com/tuskqueue/tusk/store"
)

// A rule is what the description says about a field beyond its type. The tag rule of a field names its rule; fields
// of types of other packages are in fieldRules. The rules describe what the library, access and push check.
type rule func(s *huma.Schema)

// plainText is text without control characters, which some engine could not store or a screen could not show.
const plainText = "[^\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"

const (
	namePattern  = `[a-z0-9]([a-z0-9_:\-]|\.[a-z0-9_:\-])*\.?`
	idPattern    = `[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`
	decimals     = `[0-9]{1,5}(\.[0-9]{1,9})?`
	clockPattern = `(` + decimals + `(h|m|s|ms|us|µs|ns))`
	// spanPattern is a duration with a unit. durationPattern also allows a number of seconds.
	spanPattern     = `0|` + decimals + `(d|w)` + clockPattern + `*|` + clockPattern + `+`
	durationPattern = spanPattern + `|[0-9]{1,9}(\.[0-9]{1,9})?`
	maxNumber       = 1000000 // of limits and weights
)

var rules map[string]rule

func init() {
	rules = map[string]rule{
		"name":          text(1, 64, namePattern),
		"optional-name": text(0, 64, "("+namePattern+")?"),
		"key":           text(0, tusk.MaxKeyBytes, plainText+"*"),
		"tag":           text(1, tusk.MaxTagBytes, plainText+"+"),
		"id":            text(36, 36, idPattern),
		"optional-id":   text(0, 36, "("+idPattern+")?"),
		"lease":         text(69, 69, idPattern+`\.[0-9a-fA-F]{32}`),
		"header":        text(0, 255, "[ -~]*"),
		"range":         text(0, 64, "[ -~]*"),
		"sum":           text(64, 64, `[0-9a-f]{64}`),
		"person":        text(1, 64, access.NamePattern),
		"bound":         text(1, 65, access.BoundPattern),
		"password":      text(access.MinPassword, access.MaxPassword, ""),
		"value":         text(0, query.MaxValue, plainText+"*"),
		"search":        text(0, query.MaxSearch, plainText+"*"),
		"state":         choice(stateNames()...),
		"ended":         choice("completed", "cancelled", "discarded"),
		"when":          func(s *huma.Schema) { *s = *whenSchema(s.Description) },
		"cursor":        text(0, 64, `[A-Za-z0-9_\-]*`),
		"place":         text(0, 1024, `[A-Za-z0-9_\-]*`),
		"url":           text(1, push.MaxURL, `https?://[!-~]+`),
		"mail":          text(3, 254, ".+@.+"),
		"reason":        text(0, maxReason, ""),
		"error":         text(1, 0, ""),
		"limit":         numbers(0, maxNumber),
		"weight":        numbers(0, maxNumber),
		"allowed":       numbers(1, maxNumber),
		"attempts":      numbers(0, tusk.MaxAttemptsLimit),
		"priority":      numbers(-1<<15, 1<<15-1),
		"percent":       numbers(0, 100),
		"jitter":        numbers(0, 1),
		"tenants":       func(s *huma.Schema) { fields(0, maxTenants)(s); named(s, "name") },
		"duration":      func(s *huma.Schema) { *s = *durationSchema(s.Description) },
		"on-failure":    choice("cancel", "continue", "wait"),
		"backoff":       choice("constant", "linear", "exponential"),
	}
}

// fieldRules are the rules of fields in types that the API shares with the library.
var fieldRules = map[reflect.Type]map[string]string{
	reflect.TypeFor[tusk.WorkflowTask](): {"name": "name", "kind": "name", "after": "name", "on_failure": "on-failure",
		"queue":  "optional-name",
		"tenant": "optional-name", "partition": "key", "tags": "tag", "priority": "priority", "max_attempts": "attempts",
		"weight":  "weight",
		"timeout": "duration", "stall_timeout": "duration", "delay": "duration", "expires_in": "duration",
		"deadline_in": "duration"},
	reflect.TypeFor[tusk.ChildTask](): {"kind": "name", "queue": "optional-name", "partition": "key", "tags": "tag",
		"priority": "priority", "max_attempts": "attempts", "weight": "weight", "timeout": "duration",
		"stall_timeout": "duration", "delay": "duration", "expires_in": "duration", "deadline_in": "duration"},
	reflect.TypeFor[tusk.PipelineStage](): {"name": "name", "kind": "optional-name", "queue": "optional-name",
		"tenant":    "optional-name",
		"partition": "key", "tags": "tag", "priority": "priority", "max_attempts": "attempts", "weight": "weight",
		"timeout": "duration", "stall_timeout": "duration", "deadline_in": "duration"},
	reflect.TypeFor[tusk.StageBackoff](): {"shape": "backoff", "base": "duration", "max": "duration", "jitter": "jitter"},
	reflect.TypeFor[tusk.Limits](): {"concurrency": "limit", "per_tenant": "limit", "per_partition": "limit",
		"per_worker": "limit",
		"tenants":    "tenants"},
	reflect.TypeFor[tusk.TenantLimits](): {"concurrency": "limit", "weight": "weight"},
	reflect.TypeFor[store.Progress]():    {"percent": "percent"},
}

// mostItems is the largest number of items in a list with a rule, wherever the list is.
var mostItems = map[string]int{"tag": tusk.MaxTags}

// describe adds a rule to the schema of a field, or to the items of a list.
func describe(s *huma.Schema, name string) {
	if s.Type == huma.TypeArray {
		if most, ok := mostItems[name]; ok {
			s.MaxItems = &most
		}
		s = s.Items
	}
	rules[name](s)
}

// describeFields does that for the fields of a type, and of the types in it.
func describeFields(t reflect.Type, hint string, registry huma.Registry, done map[reflect.Type]bool) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || done[t] || t == reflect.TypeFor[Instant]() {
		return
	}
	done[t] = true
	describeInto(registry.Schema(t, false, hint), t, registry, done)
}

func describeInto(s *huma.Schema, t reflect.Type, registry huma.Registry, done map[reflect.Type]bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			describeInto(s, f.Type, registry, done)
			continue
		}
		field := s.Properties[name]
		if field == nil {
			continue
		}
		describeFields(f.Type, "", registry, done)
		if rule := cmp.Or(f.Tag.Get("rule"), fieldRules[t][name]); rule != "" {
			describe(field, rule)
		}
	}
}

func text(least, most int, pattern string) rule {
	return func(s *huma.Schema) {
		if s.MinLength = &least; most > 0 {
			s.MaxLength = &most
		}
		if pattern != "" {
			s.Pattern = "^(" + pattern + ")$"
		}
	}
}

func numbers(least, most float64) rule {
	return func(s *huma.Schema) { s.Minimum, s.Maximum = &least, &most }
}

func choice(values ...string) rule {
	return func(s *huma.Schema) {
		for _, v := range values {
			s.Enum = append(s.Enum, v)
		}
	}
}

func fields(least, most int) rule {
	return func(s *huma.Schema) {
		if s.MinProperties = &least; most > 0 {
			s.MaxProperties = &most
		}
	}
}

// named sets the rule for the field names of an object.
func named(s *huma.Schema, name string) {
	names := &huma.Schema{Type: huma.TypeString}
	rules[name](names)
	s.Extensions = map[string]any{"propertyNames": names}
}

func stateNames() []string {
	var names []string
	for _, s := range store.States() {
		names = append(names, s.String())
	}
	return names
}
