package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/internal/duration"
)

func FuzzDatabaseURL(f *testing.F) {
	for _, text := range []string{"sqlite:tusk.db", "tusk.db", "postgres://u:hunter2@h:5432/d", "mysql://u@[::1]:3306/d",
		"postgres://u:p@ss@h/d", "pg://h", "", "sqlite:%zz", "postgres://h:99999/d", "postgres://a,b/d"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := parseDSN(text)
		if err == nil && (d.engine == "" || d.engine == "sqlite" && (d.path == "" || strings.ContainsRune(d.path, 0))) {
			t.Fatalf("%q is taken as %+v", text, d)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Fatalf("%q: the error tells the password: %v", text, err)
		}
		mask(text)
	})
}

// FuzzValues parses arbitrary text as values of flags.
func FuzzValues(f *testing.F) {
	for _, text := range []string{"90s", "7d", "2w1h", "-5m", "1e9d", "36501d", "9999999h", "2026-03-01T08:30:00Z",
		"2026-03-01", "exponential:5s:1h:0.5", "constant:0s", "linear:x", "customer,month@24h",
		"all@0s", "@", "acme=5:3", "acme=1:Inf", "a=-1", "100/1m", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if d, err := duration.Parse(text); err == nil && d < 0 {
			t.Fatalf("%q is the duration %v", text, d)
		}
		parseWhen(text)
		if at, err := parseInstant(text); err == nil && at.Location() == time.Local {
			t.Fatalf("%q is read in the zone of this machine", text)
		}
		if b, err := parseBackoff(text); err == nil && (b.Base <= 0 || b.Max < 0 || !(b.Jitter >= 0 && b.Jitter <= 1)) {
			t.Fatalf("%q is the backoff %+v", text, b)
		}
		if u, err := parseUnique(text); err == nil && u.Window < 0 {
			t.Fatalf("%q is unique for %v", text, u.Window)
		}
		if tenants, err := parseTenants([]string{text}); err == nil {
			if _, err := json.Marshal(tenants); err != nil {
				t.Fatalf("%q cannot be stored: %v", text, err)
			}
		}
		parseVersion(text)
	})
}

// FuzzLine parses arbitrary lines of a bulk file.
func FuzzLine(f *testing.F) {
	for _, text := range []string{`{"kind":"k","args":{"a":1}}`, `{"kind":"k","kind":"l"}`, `{"kind":1}`,
		`{"kind":"k","delay":"5m","run_at":"2026-03-01T08:30:00Z","tags":["a"]}`, `[]`, `{`, `{"kind":"k"} x`, `null`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		task, err := parseLine(text)
		if err == nil && (task.Args == nil || task.Args.Kind() == "") {
			t.Fatalf("%q is a task without a kind", text)
		}
	})
}
