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

func TestCompletionsKnowCommandsAndChoices(t *testing.T) {
	sh := newShell(t)
	for _, name := range []string{"bash", "zsh", "fish", "powershell"} {
		if got := sh.must("completion", name); !strings.Contains(got, "tusk") {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := sh.must("__complete", "tasks", "can"); !strings.HasPrefix(got, "cancel") {
		t.Error(got)
	}
	if got := sh.must("__complete", "enqueue", "--on-conflict", "re"); !strings.Contains(got, "replace") ||
		!strings.Contains(got, "rerun") {
		t.Error(got)
	}
}
