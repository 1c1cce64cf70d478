package cli

import (
	"os"
	"strings"
	"testing"
)

const noSuchID = "0193e4a0-6c1f-7d3a-9c59-1f0a2b3c4d5e"

func TestBadInputIsRefusedWithAHint(t *testing.T) {
	sh := filledShell(t)
	long := strings.Repeat("x", 10<<20)
	for _, c := range []struct {
		status int
		code   string
		parts  string // separated by |
		args   []string
	}{
		{2, "usage", "did you mean tasks?", []string{"taks"}},
		{2, "usage", "run tusk --help", []string{"wxyz"}},
		{2, "usage", "did you mean tasks?", []string{"help", "taks"}},
		{2, "usage", "did you mean list?", []string{"help", "tasks", "lst"}},
		{2, "usage", "did you mean list?", []string{"tasks", "lst"}},
		{2, "usage", "unknown flag|did you mean --state?", []string{"tasks", "list", "--sate", "running"}},
		{2, "usage", "flag needs an argument", []string{"tasks", "list", "--state"}},
		{2, "usage", `--limit "abc"|whole number`, []string{"tasks", "list", "--limit", "abc"}},
		{2, "usage", "from 1", []string{"tasks", "list", "--limit", "0"}},
		{2, "usage", "from 1", []string{"tasks", "list", "--limit", "-1"}},
		{2, "usage", "--limit or --all", []string{"tasks", "list", "--limit", "5", "--all"}},
		{2, "usage", "did you mean running?", []string{"tasks", "list", "--state", "runing"}},
		{2, "invalid_name", "queue", []string{"tasks", "list", "--queue", "'; DROP TABLE"}},
		{2, "usage", "how long ago", []string{"tasks", "list", "--since", "yesterday"}},
		{2, "usage", "not before --until", []string{"tasks", "list", "--since", "1h", "--until", "2h"}},
		{2, "usage", "at most 16 tags", []string{"tasks", "list", "--tag", strings.Repeat("a,", 10000) + "a"}},
		{2, "usage", `unexpected argument "extra"`, []string{"tasks", "list", "extra"}},
		{2, "usage", "ID is missing", []string{"tasks", "show"}},
		{2, "invalid_id", "not a UUID", []string{"tasks", "show", "17"}},
		{2, "invalid_id", "not a UUID", []string{"tasks", "cancel", "1 or 1=1"}},
		{3, "not_found", noSuchID, []string{"tasks", "show", noSuchID}},
		{3, "not_found", "", []string{"tasks", "retry", noSuchID}},
		{2, "usage", "say which tasks", []string{"tasks", "cancel"}},
		{2, "usage", "not both", []string{"tasks", "cancel", noSuchID, "--queue", "mail"}},
		{2, "confirmation_required", "--yes", []string{"tasks", "delete", noSuchID}},
		{2, "usage", "--priority is missing", []string{"tasks", "reprioritize", noSuchID}},
		{2, "usage", "--to is missing", []string{"tasks", "move", noSuchID}},
		{2, "invalid_name", "--to", []string{"tasks", "move", noSuchID, "--to", "../etc"}},
		{2, "usage", "--at or --in is missing", []string{"tasks", "reschedule", noSuchID}},
		{2, "usage", "--at or --in", []string{"tasks", "retry", noSuchID, "--in", "5m", "--at", "2030-01-01T00:00:00Z"}},

		{2, "usage", "KIND is missing", []string{"enqueue"}},
		{2, "usage", `unexpected argument "c"`, []string{"enqueue", "a", "{}", "c"}},
		{2, "usage", "unexpected argument", []string{"enqueue", "a", "--from", "-"}},
		{2, "invalid_name", "kind", []string{"enqueue", "Send Email"}},
		{2, "invalid_name", "queue", []string{"enqueue", "a", "--queue", "_tusk"}},
		{2, "invalid_name", "tenant", []string{"enqueue", "a", "--tenant", "a/b"}},
		{2, "invalid_json", "", []string{"enqueue", "a", "{"}},
		{2, "invalid_json", "", []string{"enqueue", "a", "{} {}"}},
		{2, "invalid_json", "is empty", []string{"enqueue", "a", ""}},
		{2, "invalid_json", "is empty", []string{"enqueue", "a", "-"}},
		{2, "nul_not_allowed", "", []string{"enqueue", "a", `{"x":"\u0000"}`}},
		{2, "invalid_utf8", "", []string{"enqueue", "a", `{"x":"\ud800"}`}},
		{2, "invalid_utf8", "", []string{"enqueue", "a", "\"\xff\""}},
		{2, "json_too_complex", "", []string{"enqueue", "a", strings.Repeat("[", 65) + strings.Repeat("]", 65)}},
		{2, "args_too_large", "", []string{"enqueue", "a", `"` + long + `"`}},
		{2, "invalid_name", "kind", []string{"enqueue", long}},
		{2, "usage", "from -32768 to 32767", []string{"enqueue", "a", "--priority", "99999"}},
		{2, "usage", "whole number", []string{"enqueue", "a", "--priority", "high"}},
		{2, "usage", "from 1 to 1000", []string{"enqueue", "a", "--max-attempts", "0"}},
		{2, "usage", "want NAME=VALUE", []string{"enqueue", "a", "--metadata", "b"}},
		{2, "usage", "from 1 to 1000", []string{"enqueue", "a", "--max-attempts", "1000000000"}},
		{2, "usage", "from 1 to 1000", []string{"enqueue", "a", "--max-attempts", "99999999999999999999"}},
		{2, "usage", "negative", []string{"enqueue", "a", "--timeout=-1s"}},
		{2, "out_of_range", "timeout", []string{"enqueue", "a", "--timeout", "3650d"}},
		{2, "usage", "no time zone", []string{"enqueue", "a", "--run-at", "2027-01-01T00:00:00"}},
		{2, "usage", "RFC 3339", []string{"enqueue", "a", "--run-at", "tomorrow"}},
		{2, "invalid_time", "", []string{"enqueue", "a", "--run-at", "0001-06-01T00:00:00Z"}},
		{2, "out_of_range", "ahead", []string{"enqueue", "a", "--run-at", "2999-01-01T00:00:00Z"}},
		{2, "usage", "want a duration", []string{"enqueue", "a", "--delay", "9e18s"}},
		{2, "usage", "want a duration", []string{"enqueue", "a", "--delay", "1 month"}},
		{2, "usage", "negative", []string{"enqueue", "a", "--delay=-5m"}},
		{2, "out_of_range", "ahead", []string{"enqueue", "a", "--delay", "5000d"}},
		{2, "usage", "too long", []string{"enqueue", "a", "--delay", "99999999d"}},
		{2, "usage", "--run-at or --delay", []string{"enqueue", "a", "--delay", "1m", "--run-at", "2027-01-01T00:00:00Z"}},
		{2, "usage", "--expires-at or --expires-in", []string{"enqueue", "a", "--expires-in", "1m", "--expires-at",
			"2027-01-01T00:00:00Z"}},
		{2, "usage", "want skip, replace, rerun or once", []string{"enqueue", "a", "--key", "k", "--on-conflict", "x"}},
		{2, "usage", "ksh", []string{"completion", "ksh"}},
		{2, "usage", "from 1 to 100000", []string{"work", "--concurrency", "0"}},
		{2, "usage", "above 0", []string{"work", "--keep-discarded", "0s"}},
		{2, "out_of_range", "]: --delay: is 4000d ahead", []string{"enqueue", "a", "--delay", "4000d"}},
		{2, "out_of_range", "]: --deadline-in: is", []string{"enqueue", "a", "--deadline-in", "4000d"}},
		{2, "out_of_range", "]: --run-at: is", []string{"enqueue", "a", "--run-at", "2999-01-01T00:00:00Z"}},
		{2, "out_of_range", "]: --stall-timeout: is", []string{"enqueue", "a", "--stall-timeout", "4000d"}},
		{2, "out_of_range", "]: --unique: window: is", []string{"enqueue", "a", "--unique", "all@1ms"}},
		{2, "out_of_range", "]: --at: is", []string{"tasks", "reschedule", noSuchID, "--at", "2999-01-01T00:00:00Z"}},
		{2, "out_of_range", "]: --in: is", []string{"tasks", "retry", noSuchID, "--in", "4000d"}},
		{2, "invalid_name", "]: --to: \"A\" is not a name", []string{"tasks", "move", noSuchID, "--to", "A", "--create"}},
		{2, "usage", "changes no task that is running|give --state scheduled",
			[]string{"tasks", "delete", "--state", "running"}},
		{2, "usage", "changes no task that is completed or running", []string{"tasks", "reprioritize", "--priority", "1",
			"--state", "completed", "--state", "running"}},
		{2, "usage", "from 1 to 100000000", []string{"bench", "--tasks", "0"}},
		{2, "usage", `--ignore "foo"|connection`, []string{"doctor", "--ignore", "foo"}},
		{2, "usage", "did you mean leader?", []string{"doctor", "--ignore", "leeder"}},
		{2, "usage", "not a URL of a server|http://127.0.0.1:8787", []string{"health", "--url", "nonsense"}},
		{2, "usage", "not a URL of a server", []string{"health", "--url", "ftp://host"}},
		{2, "usage", "--oidc-role needs --oidc-issuer", []string{"serve", "--oidc-role", "ops=admin"}},
		{2, "usage", "--oidc-client-id needs --oidc-issuer", []string{"serve", "--oidc-client-id", "x"}},
		{2, "invalid_id", "the first or the last 6 digits", []string{"tasks", "cancel", "zzz"}},
		{2, "invalid_id", "the first or the last 6 digits", []string{"workflows", "show", "zzz"}},
		{2, "invalid_id", "the first or the last 6 digits", []string{"operations", "show", "zzz"}},
		{2, "out_of_range", "]: --lease: is 1ms", []string{"work", "--lease", "1ms"}},
		{2, "out_of_range", "]: --beat: is", []string{"work", "--lease", "1s", "--beat", "1h"}},
		{2, "out_of_range", "]: --shutdown-timeout: is", []string{"work", "--shutdown-timeout", "9000h"}},
		{2, "out_of_range", "]: --keep-completed: is 1ms, want 1s to", []string{"work", "--keep-completed", "1ms"}},
		{2, "out_of_range", "]: --keep-stats: is 1ms", []string{"work", "--keep-stats", "1ms"}},
		{2, "invalid_cron", "]: --spec: found 1", []string{"schedules", "next", "--spec", "x"}},
		{2, "invalid_name", "]: queue: \"A\" is not a name", []string{"queues", "pause", "A"}},
		{2, "out_of_range", "]: --every: is", []string{"queues", "age", "mail", "--every", "1ms", "--create"}},
		{2, "out_of_range", "]: --tenant: acme: concurrency: is 9999999, want 0 to 1000000",
			[]string{"limits", "set", "mail", "--tenant", "acme=9999999", "--create"}},
		{2, "out_of_range", "]: --tenant: acme: weight: is 9999999, want 0 to 1000000",
			[]string{"limits", "set", "mail", "--tenant", "acme=1:9999999", "--create"}},
		{2, "usage", "--key is empty|unset", []string{"enqueue", "a", "--key", ""}},
		{2, "usage", "--queue is empty", []string{"enqueue", "a", "--queue="}},
		{2, "usage", "--tags is empty", []string{"enqueue", "a", "--tags", ""}},
		{2, "usage", "--queue is empty", []string{"tasks", "cancel", "--kind", "a", "--queue", "", "--yes"}},
		{2, "usage", "--exec is empty", []string{"work", "--exec", ""}},
		{2, "usage", "--from is empty", []string{"enqueue", "--from", ""}},
		{2, "usage", "--db is empty", []string{"tasks", "list", "--db", ""}},
		{2, "usage", "above 0", []string{"queues", "keep", "mail", "--completed", "0", "--discarded", "30d"}},
		{2, "usage", "above 0", []string{"queues", "age", "mail", "--every", "0s"}},
		{2, "usage", "above 0", []string{"archive", "keep", "mail", "--for", "0"}},
		{2, "usage", "want a duration", []string{"work", "--lease", "soon"}},
		{2, "usage", "above 0", []string{"tokens", "create", "t", "--expires-in", "0"}},
		{2, "usage", "did you mean rerun?", []string{"enqueue", "a", "--key", "k", "--on-conflict", "reruns"}},
		{2, "needs_key", "tasks with a key", []string{"enqueue", "a", "--on-conflict", "rerun"}},
		{2, "needs_rerun", "rerun", []string{"enqueue", "a", "--key", "k", "--source-time",
			"2026-01-01T00:00:00Z"}},
		{2, "usage", "did you mean linear?", []string{"enqueue", "a", "--backoff", "liner:5m"}},
		{2, "usage", "jitter", []string{"enqueue", "a", "--backoff", "exponential:1s:1h:7"}},
		{2, "usage", "base", []string{"enqueue", "a", "--backoff", "constant:0s"}},
		{2, "too_long", "key", []string{"enqueue", "a", "--key", strings.Repeat("k", 256)}},
		{2, "invalid_text", "control", []string{"enqueue", "a", "--key", "a\x1b[2J"}},
		{2, "too_many", "tags", []string{"enqueue", "a", "--tags", strings.Repeat("t,", 16) + "t"}},
		{2, "usage", "", []string{"enqueue", "a", "--metadata", "novalue"}},
		{2, "usage", "cannot be read", []string{"enqueue", "--from", "nowhere.jsonl"}},
		{2, "usage", "is a folder", []string{"enqueue", "--from", "."}},
		{2, "usage", "--queue is for one task", []string{"enqueue", "--from", "-", "--queue", "mail"}},

		{3, "not_found", "tusk errors", []string{"errors", "show", "nope"}},
		{3, "not_found", "tusk errors", []string{"errors", "retry", "nope"}},
		{2, "usage", "FINGERPRINT is missing", []string{"errors", "retry"}},
		{2, "usage", "minute, hour, day", []string{"stats", "--by", "week"}},
		{2, "invalid_name", "kind", []string{"stats", "--kind", "%"}},
		{2, "invalid_name", "queue", []string{"queues", "pause", "A"}},
		{2, "usage", "QUEUE is missing", []string{"queues", "resume"}},
		{2, "usage", "SPEC and KIND is missing", []string{"schedules", "add", "n"}},
		{2, "invalid_cron", "", []string{"schedules", "add", "n", "* * * *", "k"}},
		{2, "invalid_cron", "", []string{"schedules", "add", "n", "* * * * * * *", "k"}},
		{2, "invalid_cron", "", []string{"schedules", "add", "n", "* * 31 2 *", "k"}},
		{2, "invalid_cron", "", []string{"schedules", "add", "n", "@every 0s", "k"}},
		{2, "invalid_cron", "", []string{"schedules", "add", "n", "60 * * * *", "k"}},
		{2, "invalid_cron", "", []string{"schedules", "add", "n", "*/0 * * * *", "k"}},
		{2, "invalid_cron", "", []string{"schedules", "add", "n", strings.Repeat("* ", 5000), "k"}},
		{2, "invalid_cron", "", []string{"schedules", "add", "n", "* * * * *", "k", "--zone", "Mars/Phobos"}},
		{2, "invalid_cron", "", []string{"schedules", "add", "n", "* * * * *", "k", "--zone", "../../etc/localtime"}},
		{2, "invalid_name", "schedule", []string{"schedules", "add", "N n", "* * * * *", "k"}},
		{2, "usage", "did you mean buffer?", []string{"schedules", "add", "n", "* * * * *", "k", "--overlap", "bufer"}},
		{2, "usage", "from 1 to 10000", []string{"schedules", "add", "n", "* * * * *", "k", "--cap", "0"}},
		{3, "not_found", "nope", []string{"schedules", "remove", "nope", "--yes"}},
		{3, "not_found", "nope", []string{"schedules", "pause", "nope"}},
		{3, "not_found", "nope", []string{"schedules", "run", "nope"}},
		{3, "not_found", "nope", []string{"schedules", "next", "nope"}},
		{2, "invalid_cron", "", []string{"schedules", "next", "--spec", "61 * * * *"}},
		{2, "usage", "NAME is missing", []string{"schedules", "next"}},
		{2, "usage", "no version 99", []string{"migrate", "up", "--to", "99"}},
		{2, "usage", "want a version", []string{"migrate", "up", "--to", "-3"}},
		{2, "confirmation_required", "--yes", []string{"migrate", "down"}},
		{2, "usage", "did you mean warn?", []string{"queues", "list", "--log-level", "wran"}},
		{2, "usage", "want true or false", []string{"queues", "list", "--json=perhaps"}},
	} {
		var parts []string
		if c.parts != "" {
			parts = strings.Split(c.parts, "|")
		}
		sh.fails(c.status, c.code, parts, c.args...)
	}
	if rows := sh.json("tasks", "list"); len(rows) != 0 {
		t.Errorf("something was stored: %v", rows)
	}
}

func TestErrorsAreOneShortLineWithoutEscapeSequences(t *testing.T) {
	sh := filledShell(t)
	for _, args := range [][]string{
		{"enqueue", strings.Repeat("x", 10<<20)},
		{"\x1b[2J\x1b]0;owned\x07"},
		{"tasks", "list", "--limit", "\x1b[31m" + strings.Repeat("9", 1<<20)},
		{"tasks", "show", "a\nb\x1b[2Jc"},
		{"schedules", "next", "--spec", "\x1b[2J\n\n"},
	} {
		r := sh.run(args...)
		if len(r.err) > 2000 || strings.Count(r.err, "\n") != 1 || strings.ContainsAny(r.err, "\x1b\x07") {
			t.Errorf("%q…: %.300q", args[0], r.err)
		}
	}
}

func TestCommandsThatOnlyLookCreateNothing(t *testing.T) {
	sh := newShell(t)
	for _, args := range [][]string{
		{"tasks", "list"}, {"tasks", "cancel", "--all", "--yes"}, {"errors"}, {"stats"}, {"queues", "list"},
		{"queues", "pause", "a"},
		{"workers", "list"}, {"schedules", "list"}, {"schedules", "add", "n", "@hourly", "k"},
		{"migrate", "status"}, {"migrate", "down", "--yes"}, {"tokens", "list"}, {"tokens", "revoke", "a"},
		{"users", "list"}, {"users", "remove", "ada"}, {"sessions", "list"}, {"endpoints", "list"},
		{"endpoints", "remove", "a"},
	} {
		sh.fails(exitUsage, "database_missing", []string{`"tusk.db"`, "tusk migrate up"}, args...)
	}
	sh.must("enqueue", "a", "--dry-run")
	if steps := sh.json("migrate", "up", "--dry-run"); len(steps) == 0 || steps[0]["state"] != "would go up" {
		t.Error(steps)
	}
	sh.must("schedules", "next", "--spec", "@hourly")
	sh.must("version")
	sh.must("config", "show")
	if entries, _ := os.ReadDir("."); len(entries) != 0 {
		t.Errorf("created: %v", entries)
	}
	sh.must("tasks", "list", "--auto-migrate")
}

func TestASchemaThatIsNotThereIsNamed(t *testing.T) {
	sh := newShell(t)
	sh.must("migrate", "up")
	sh.must("migrate", "down", "--to", "0", "--yes")
	sh.fails(exitUsage, "schema_missing", []string{"tusk migrate up"}, "tasks", "list")
	sh.must("enqueue", "a") // fills an embedded database, and so creates its schema
	sh.must("tasks", "list")
}
