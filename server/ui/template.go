package ui

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/archive"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/server/query"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/why"
)

// templates are the pages by name. Each is parsed, together with the layout, when it is first shown, because all of
// them together take 10 MB.
type templates map[string]func() (*template.Template, error)

// page is the data of every template.
type page struct {
	Title, Section string
	Who            access.Identity
	Data           any
	Note           string
	Theme          string
	Here           string // path and query, without the prefix
	Status         int
	Watch          string // see answer.watch
	// Discarded is the number of discarded tasks; empty if there are none, or they were not counted recently.
	Discarded string

	Environment string
	ReadOnly    bool
	LogOut      bool // somebody is logged in
	Admin, API  bool
	Push        bool // there are endpoints
	Alerts      bool // there may be alerts
	Archive     bool // there is an archive
	Settings    bool // there are settings, and the visitor may see them
	Version     string
	Now         time.Time
}

// notes are the messages after a form was processed. The URL contains only the name.
var notes = map[string]string{
	"enqueued": "The task is enqueued.", "duplicate": "An unfinished task has that key: this is it.",
	"cancelled": "The task is cancelled.", "requested": "The task runs: its worker is asked to stop.",
	"retried": "The task is available again.", "deleted": "The task is deleted.", "changed": "The task is changed.",
	"edited": "Done. What did not allow the change was left alone.",
	"paused": "Paused. Running tasks go on.", "resumed": "Resumed.", "ran": "A task is enqueued.",
	"backfilled": "The tasks of those ticks are enqueued, but for those that were and have not finished.",
	"saved":      "Saved.", "removed": "Removed.",
	"password":      "Your password is changed, and your other sessions have ended.",
	"sessionsended": "Logged out everywhere, within two seconds.", "revoked": "Revoked.",
	"stopping": "It stops after the page that it is at.",
	"quiet":    "It claims nothing more, within a second. What it runs goes on.", "awake": "It claims tasks again.",
	"again":        "It and what comes after it run again.",
	"retriedall":   "The tasks that failed or were cancelled are available again.",
	"cancelledall": "What had not finished is cancelled, or asked to stop.",
	"testing":      "A test is on its way. What became of it shows under Last arrived.", "muted": "Muted for an hour.",
	"unmuted": "No longer muted.",
	"started": "Started. It goes on in the background.",
}

func (v *visit) base(a answer) page {
	here := *v.r.URL
	q := here.Query()
	q.Del("note")
	here.RawQuery = q.Encode()
	p := page{Title: a.title, Section: a.section, Who: v.who, Data: a.data, Note: notes[v.r.URL.Query().Get("note")],
		Theme: theme(v.r), Here: here.RequestURI(), Status: a.status, Watch: a.watch, Environment: v.Environment,
		ReadOnly: v.ReadOnly,
		LogOut:   v.Gate != nil && v.who.Via == "session", Admin: v.Book != nil && v.who.May(access.Admin), API: !v.NoAPI,
		Push: v.Endpoints != nil && v.Push != nil, Alerts: v.Options.Alerts != nil,
		Archive:  v.Options.Archive != nil,
		Settings: len(v.Options.Settings) > 0 && v.who.May(access.Admin),
		Version:  tusk.Version(), Now: time.Now().UTC()}
	if d := v.Feed.KnownDiscarded(); v.who.SeesAllTenants() && time.Since(d.At) < time.Minute {
		if n := v.discardedOf(d); n != "0" {
			p.Discarded = n
		}
	}
	return p
}

// fail shows an error. Errors of the server are logged.
func (p *pages) fail(w http.ResponseWriter, r *http.Request, base page, err error) {
	f := failureOf(err)
	if f.Status >= 500 {
		p.Log.Error("page failed", "path", r.URL.Path, "error", err)
	}
	if passes(err) {
		w.Header().Set("Retry-After", again)
		if r.Method == http.MethodGet {
			w.Header().Set("Refresh", again)
			f = &Failure{f.Status, f.Text + " This page tries again by itself."}
		}
	}
	base.Title, base.Data, base.Status, base.Theme = http.StatusText(f.Status), f, f.Status, theme(r)
	if base.Now.IsZero() {
		base.Now, base.Here, base.Version = time.Now().UTC(), r.URL.RequestURI(), tusk.Version()
	}
	p.render(w, answer{page: "failure", status: f.Status}, base)
}

// May is for templates: it hides forms that would be refused. The refusal itself does not depend on it.
func (p page) May(permission string) bool {
	return p.Who.May(access.Permission(permission)) && (!p.ReadOnly || permission == string(access.Read))
}

func theme(r *http.Request) string {
	if c, err := r.Cookie("tusk_theme"); err == nil && (c.Value == "dark" || c.Value == "light") {
		return c.Value
	}
	return "auto"
}

func (p *pages) makeTemplates() (templates, error) {
	entries, err := files.ReadDir("templates")
	if err != nil {
		return nil, err
	}
	all := templates{}
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), ".html")
		if name == "layout" || name == "parts" {
			continue
		}
		all[name] = sync.OnceValues(func() (*template.Template, error) {
			return template.New(name).Option("missingkey=error").Funcs(p.functions()).
				ParseFS(files, "templates/layout.html", "templates/parts.html", "templates/"+e.Name())
		})
	}
	return all, nil
}

func (p *pages) functions() template.FuncMap {
	return template.FuncMap{
		"url":      p.url,
		"num":      num,
		"dur":      dur,
		"when":     func(t time.Time) instant { return instant{t, time.Now()} },
		"code":     p.code,
		"masked":   p.Mask.Text,
		"logged":   p.logged,
		"short":    func(id fmt.Stringer) string { return id.String()[24:] },
		"join":     strings.Join,
		"states":   func() []string { return stateNames },
		"iso":      func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"dict":     func(pairs ...any) (map[string]any, error) { return pairMap(pairs) },
		"list":     func(items ...string) []string { return items },
		"known":    func(span string) bool { return slices.Contains([]string{"", "15m", "1h", "24h", "168h"}, span) },
		"swap":     swap,
		"line":     p.line,
		"rate":     rateText,
		"keeps":    keeps,
		"archived": func(q archive.Query) string { return filterWords(query.Tasks(query.ArchivedOf(q))) },
		"ran":      ranFor,
		"sum":      func(a, b int64) int64 { return a + b },
		"words":    func(code why.Code) string { return strings.ReplaceAll(string(code), "_", " ") },
		"title":    func(s string) string { return strings.ToUpper(s[:1]) + s[1:] },
		"asset":    func(name string) string { return path.Join("/", p.Prefix, "static", name) },
	}
}

// url returns the address of a page. It escapes each path segment.
func (p *pages) url(segments ...any) string {
	var b strings.Builder
	b.WriteString(p.Prefix)
	for _, s := range segments {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(fmt.Sprint(s)))
	}
	if len(segments) == 0 {
		b.WriteByte('/')
	}
	return b.String()
}

func pairMap(pairs []any) (map[string]any, error) {
	if len(pairs)%2 != 0 {
		return nil, fmt.Errorf("dict: want pairs")
	}
	m := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		m[fmt.Sprint(pairs[i])] = pairs[i+1]
	}
	return m, nil
}

var stateNames = []string{"scheduled", "pending", "available", "running", "retryable", "completed", "cancelled",
	"discarded"}

// instant is a time for the template "when".
type instant struct {
	time.Time
	now time.Time
}

// Relative says how far away the time is.
func (i instant) Relative() string {
	d := i.now.Sub(i.Time)
	switch {
	case d < -time.Second:
		return "in " + dur(-d)
	case d < time.Second:
		return "now"
	default:
		return dur(d) + " ago"
	}
}

// Exact returns the time in UTC.
func (i instant) Exact() string { return i.UTC().Format("2006-01-02 15:04:05.000 UTC") }

// Machine returns the time in machine-readable form.
func (i instant) Machine() string { return i.UTC().Format(time.RFC3339Nano) }

func num(n any) string {
	text := fmt.Sprint(n)
	sign := ""
	if rest, negative := strings.CutPrefix(text, "-"); negative {
		sign, text = "-", rest
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "\u202f" + text[i:]
	}
	return sign + text
}

// dur formats a duration in its one or two largest units.
func dur(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + dur(-d)
	case d == 0:
		return "0 s"
	case d < time.Millisecond:
		return strconv.FormatInt(d.Microseconds(), 10) + " µs"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	case d < time.Minute:
		return strconv.Itoa(int(d.Seconds())) + " s"
	case d < time.Hour:
		return units(d, time.Minute, "min", time.Second, "s")
	case d < 48*time.Hour:
		return units(d, time.Hour, "h", time.Minute, "min")
	default:
		return units(d, 24*time.Hour, "d", time.Hour, "h")
	}
}

func units(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	text := fmt.Sprintf("%d %s", d/large, largeName)
	if rest := d % large / small; rest > 0 {
		text += fmt.Sprintf(" %d %s", rest, smallName)
	}
	return text
}

// swap returns the query with one value changed, or removed if value is empty.
func swap(v url.Values, name, value string) template.URL {
	changed := url.Values{}
	for n, all := range v {
		changed[n] = all
	}
	if changed.Del(name); value != "" {
		changed.Set(name, value)
	}
	return template.URL(changed.Encode()) //nolint:gosec // what Encode writes is safe in a URL
}

const lineBytes = 160

// line returns JSON for one line of a table.
func (p *pages) line(text []byte) string {
	text = p.Mask.JSON(text)
	if len(text) > lineBytes {
		text = text[:lineBytes]
	}
	return strings.ToValidUTF8(strings.Join(strings.Fields(string(text)), " "), "")
}

// logged returns the text of a log line.
func (p *pages) logged(l store.LogLine) string {
	if l.Level == store.LevelStep {
		return p.Mask.Step(l.Text)
	}
	return l.Text
}

// shown is JSON as pages show it: masked, indented, and cut unless everything is requested.
type shown struct {
	Text string
	Cut  int // number of bytes left out
}

const shownBytes = 4 << 10

func (p *pages) code(text []byte, all bool) shown {
	text = p.Mask.JSON(text)
	var out bytes.Buffer
	if len(text) > 1<<20 || json.Indent(&out, text, "", "  ") != nil {
		out.Reset()
		out.Write(text)
	}
	s := shown{Text: out.String()}
	if !all && len(s.Text) > shownBytes {
		s.Cut = len(s.Text) - shownBytes
		s.Text = strings.ToValidUTF8(s.Text[:shownBytes], "")
	}
	return s
}
