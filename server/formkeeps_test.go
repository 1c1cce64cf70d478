package server_test

import (
	"encoding/json"
	"html"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
)

// fill sets every field of the value that in points to, except those left out.
func fill(t *testing.T, in any, leftOut ...string) {
	t.Helper()
	later := func(d time.Duration) *server.Instant {
		return &server.Instant{Time: time.Now().Add(d).UTC().Truncate(time.Microsecond)}
	}
	values := map[string]any{"Args": json.RawMessage(`{"to": "ada", "n": 1}`), "Tags": []string{"a", "b"},
		"Metadata": map[string]string{"by": "ada"}, "Backoff": &server.BackoffInput{Shape: "exponential",
			Base: server.Duration(3 * time.Second), Max: server.Duration(time.Hour), Jitter: 0.25},
		"RunAt": later(3 * time.Hour), "Start": later(time.Hour), "ExpiresAt": later(5 * time.Hour),
		"Deadline": later(7 * time.Hour), "Spec": "@every 5h", "Zone": "Europe/Vienna", "Missed": "all", "Overlap": "buffer",
		"OnConflict": "skip"}
	v := reflect.ValueOf(in).Elem()
	for i := range v.NumField() {
		name, field := v.Type().Field(i).Name, v.Field(i)
		if strings.Contains(" "+strings.Join(leftOut, " ")+" ", " "+name+" ") {
			continue
		}
		if value, given := values[name]; given {
			field.Set(reflect.ValueOf(value))
			continue
		}
		switch field.Interface().(type) {
		case string:
			field.SetString(strings.ToLower(name) + "-x")
		case int, int16:
			field.SetInt(int64(3 + i))
		case server.Duration:
			field.SetInt(int64(time.Duration(61+i) * time.Second))
		case bool:
			field.SetBool(true)
		default:
			t.Fatalf("give %s a value here, and have the forms keep it", name)
		}
	}
}

var (
	formTag  = regexp.MustCompile(`(?s)<input\b([^>]*)>|<textarea\b([^>]*)>([^<]*)|<select\b([^>]*)>(.*?)</select>`)
	attr     = regexp.MustCompile(`([a-z]+)(?:="([^"]*)")?`)
	selected = regexp.MustCompile(`<option selected>([^<]*)`)
)

// formOn returns what a browser sends for a form that nobody has changed.
func formOn(t *testing.T, page, action string) url.Values {
	t.Helper()
	_, form, found := strings.Cut(page, `action="`+action+`"`)
	if !found {
		t.Fatalf("no form for %s on %.2000s", action, page)
	}
	form, _, _ = strings.Cut(form, "</form>")
	values := url.Values{}
	for _, tag := range formTag.FindAllStringSubmatch(form, -1) {
		has := map[string]string{}
		for _, a := range attr.FindAllStringSubmatch(tag[1]+tag[2]+tag[4], -1) {
			has[a[1]] = html.UnescapeString(a[2])
		}
		_, checked := has["checked"]
		switch option := selected.FindStringSubmatch(tag[5]); {
		case option != nil:
			values.Set(has["name"], option[1])
		case tag[2] != "":
			values.Set(has["name"], html.UnescapeString(tag[3]))
		case tag[1] != "" && (has["type"] != "checkbox" || checked):
			values.Set(has["name"], has["value"])
		}
	}
	return values
}

func textOf(t *testing.T, v any) string {
	t.Helper()
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestAFormThatNobodyChangedKeepsAllOfATask(t *testing.T) {
	s := start(t)
	for name, without := range map[string]string{"with a key": "", "without a key": "Key"} {
		t.Run(name, func(t *testing.T) {
			var in server.TaskInput
			// Left out: the other ways to give run time, expiry and deadline; unique args, because such a task cannot
			// be edited; and a source time, which is for a rerun, whereas an edit replaces.
			fill(t, &in, "Delay", "ExpiresIn", "DeadlineIn", "Unique", "SourceTime", without)
			var e server.EnqueuedTask
			s.do("POST", "/api/v1/tasks", in).want(t, 201, &e)
			before := s.stored(t, e.ID)
			form := formOn(t, s.page("/tasks/new?of="+e.ID+"&edit=1").body, "/tasks/new")
			a := s.post("/tasks/new", form.Encode())
			if a.status != 303 {
				t.Fatal(a.status, a.body)
			}
			id, _, _ := strings.Cut(strings.TrimPrefix(a.header.Get("Location"), "/tasks/"), "?")
			after := s.stored(t, id)
			if before != after {
				t.Errorf("the task was\n%s\nand is\n%s", before, after)
			}
		})
	}
}

// stored describes a task without the fields that differ when another task replaces it.
func (s *site) stored(t *testing.T, id string) string {
	t.Helper()
	parsed, err := tusk.ParseID(id)
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.client.Get(t.Context(), parsed)
	if err != nil {
		t.Fatal(err)
	}
	info.ID, info.EnqueuedAt, info.Detail = tusk.ID{}, time.Time{}, nil
	return textOf(t, info)
}

func TestAFormThatNobodyChangedKeepsAllOfASchedule(t *testing.T) {
	s := start(t)
	var in server.ScheduleInput
	fill(t, &in)
	s.do("PUT", "/api/v1/schedules/x", in).want(t, 200, nil)
	before, err := s.client.Schedule(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	form := formOn(t, s.page("/schedules/x").body, "/new-schedule")
	if a := s.post("/new-schedule", form.Encode()); a.status != 303 {
		t.Fatal(a.status, a.body)
	}
	after, err := s.client.Schedule(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if b, a := textOf(t, before), textOf(t, after); a != b {
		t.Errorf("the schedule was\n%s\nand is\n%s", b, a)
	}
}
