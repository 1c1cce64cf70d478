package cli

import (
	"strings"
	"testing"
)

func TestNamesOfTheDatabaseAreCompleted(t *testing.T) {
	sh := filledShell(t)
	sh.must("enqueue", "resize", "{}", "--queue", "images")
	sh.must("schedules", "add", "nightly", "@every 24h", "report")
	for line, want := range map[string]string{
		"tasks list --queue im":  "images",
		"tasks list --kind re":   "resize",
		"tasks list --state dis": "discarded",
		"queues pause im":        "images",
		"limits set im":          "images",
		"schedules pause ni":     "nightly",
	} {
		if got := sh.must(append([]string{"__complete"}, strings.Fields(line)...)...); !strings.Contains(got, want+"\n") {
			t.Errorf("%s: %q", line, got)
		}
	}
}
