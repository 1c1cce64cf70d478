package cli

import (
	"strings"
	"testing"
)

func TestNamesOfTheDatabaseAreCompleted(t *testing.T) {
	sh := filledShell(t)
	sh.must("enqueue", "resize", "{}", "--queue", "images")
	sh.must("schedules", "add", "nightly", "@every 24h", "report")
	sh.must("alerts", "put", "slow", "--kind", "no_leader", "--mail", "ops@example.com")
	sh.must("hooks", "put", "crm", "--url", "https://app.example.com/ends")
	for line, want := range map[string]string{
		"tasks list --queue im":  "images",
		"tasks list --kind re":   "resize",
		"tasks list --state dis": "discarded",
		"queues pause im":        "images",
		"limits set im":          "images",
		"schedules pause ni":     "nightly",
		"alerts mute sl":         "slow",
		"hooks show c":           "crm",
	} {
		if got := sh.must(append([]string{"__complete"}, strings.Fields(line)...)...); !strings.Contains(got, want+"\n") {
			t.Errorf("%s: %q", line, got)
		}
	}
}

func TestNamesAreThoseOfTheDatabaseThatAVariableNames(t *testing.T) {
	sh := newShell(t)
	sh.env = append(sh.env, "TUSK_DATABASE_URL=sqlite:other.db")
	sh.must("enqueue", "resize", "{}", "--queue", "images")
	if got := sh.must("__complete", "queues", "pause", "im"); !strings.Contains(got, "images\n") {
		t.Errorf("%q", got)
	}
}
