package cli

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func (sh *shell) setting(key string, args ...string) string {
	sh.t.Helper()
	for _, row := range sh.json(append([]string{"config", "show"}, args...)...) {
		if row["key"] == key {
			return fmt.Sprintf("%v from %v", row["value"], row["source"])
		}
	}
	return "nothing"
}

func TestASettingComesFromTheFlagThenTheVariableThenTheFileThenTheDefault(t *testing.T) {
	sh := newShell(t)
	expect := func(want string, args ...string) {
		t.Helper()
		if got := sh.setting("db", args...); got != want {
			t.Errorf("db is %s, want %s", got, want)
		}
	}
	expect("sqlite:tusk.db from default")
	sh.write("tusk.yaml", "db: sqlite:file.db\n", 0o644)
	expect("sqlite:file.db from tusk.yaml:1")
	sh.env = append(sh.env, "DATABASE_URL=sqlite:plain.db")
	expect("sqlite:plain.db from DATABASE_URL")
	sh.env = append(sh.env, "TUSK_DATABASE_URL=sqlite:own.db")
	expect("sqlite:own.db from TUSK_DATABASE_URL")
	expect("sqlite:flag.db from flag", "--db", "sqlite:flag.db")
	sh.env = append(sh.env, "TUSK_DATABASE_URL=") // empty means unset
	expect("sqlite:plain.db from DATABASE_URL")
}

func TestTheFileIsLookedForInThreePlaces(t *testing.T) {
	sh := newShell(t)
	sh.write("config/tusk/tusk.yaml", "log_level: warn\n", 0o644)
	sh.write("home/.config/tusk/tusk.yaml", "log-level: error\n", 0o644)
	sh.env = append(sh.env, "HOME=home")
	if got := sh.setting("log_level"); got != "error from home/.config/tusk/tusk.yaml:1" {
		t.Error(got)
	}
	sh.env = append(sh.env, "XDG_CONFIG_HOME=config")
	if got := sh.setting("log_level"); got != "warn from config/tusk/tusk.yaml:1" {
		t.Error(got)
	}
	sh.write("other.yaml", "log_level: debug\n", 0o644)
	sh.env = append(sh.env, "TUSK_CONFIG=other.yaml")
	if got := sh.setting("log_level"); got != "debug from other.yaml:1" {
		t.Error(got)
	}
}

func TestCommandsHaveSectionsInTheFileAndVariablesForTheirFlags(t *testing.T) {
	sh := filledShell(t)
	for range 5 {
		sh.must("enqueue", "a", "--tags", "x,y")
	}
	sh.write("tusk.yaml", "tasks:\n  list:\n    limit: 3\n    tag: [x, y]\nwork: {}\n", 0o644)
	if got := len(sh.json("tasks", "list")); got != 3 {
		t.Errorf("%d tasks by the file", got)
	}
	sh.env = append(sh.env, "TUSK_TASKS_LIST_LIMIT=2")
	if got := len(sh.json("tasks", "list")); got != 2 {
		t.Errorf("%d tasks by the variable", got)
	}
	if got := len(sh.json("tasks", "list", "--limit", "1")); got != 1 {
		t.Errorf("%d tasks by the flag", got)
	}
}

func TestSecretsMayComeFromFilesAndVariables(t *testing.T) {
	sh := newShell(t)
	sh.write("secret", "sqlite:secret.db\n", 0o600)
	sh.env = append(sh.env, "TUSK_DATABASE_URL_FILE=secret")
	if got := sh.setting("db"); got != "sqlite:secret.db from TUSK_DATABASE_URL" {
		t.Error(got)
	}
	sh.env = append(sh.env, "TUSK_DATABASE_URL=x.db")
	sh.fails(exitUsage, "invalid_config", []string{"both set"}, "queues", "list")
	sh = newShell(t)
	sh.env = append(sh.env, "PASSWORD=topsecret")
	sh.write("tusk.yaml", "db: postgres://u:${PASSWORD}@h/db\n", 0o600)
	if got := sh.setting("db"); got != "postgres://u:***@h/db from tusk.yaml:1" {
		t.Error(got)
	}
}

func TestEverythingWrongWithTheConfigurationIsToldAtOnce(t *testing.T) {
	sh := newShell(t)
	sh.write("tusk.yaml", `db: postgres://u:topsecret@h:99999/db
log_levle: debug
log_level: loud
tasks:
  list:
    limit: -5
    state: {a: b}
    since: soon
  cancel: {yes: true}
json: maybe
json: false
quiet: ${NOT_SET}
schedules:
  next: [1, 2]
enqueue:
  timeout: -5s
  tags: [[a]]
`, 0o644)
	sh.env = append(sh.env, "TUSK_AUTO_MIGRATE=perhaps", "TUSK_TASKS_LIST_LIMTI=5",
		"TUSK_WORK_CONCURRENCY=many")
	r := sh.run("config", "check")
	if r.status != exitUsage {
		t.Errorf("status %d", r.status)
	}
	for _, want := range []string{
		"tusk.yaml:1: everybody can read the password in it",
		"tusk.yaml:1: the port in the database URL",
		"tusk.yaml:2: unknown key log_levle; did you mean log_level?",
		"tusk.yaml:3: log_level: want debug, info, warn or error",
		"tusk.yaml:6: tasks.list.limit: want a number from 1",
		"tusk.yaml:7: unknown key tasks.list.state.a",
		"tusk.yaml:8: tasks.list.since: want how long ago",
		"tusk.yaml:9: tasks.cancel.yes cannot be set in a file",
		"tusk.yaml:11: key json comes twice",
		"tusk.yaml:12: quiet: the variable ${NOT_SET} is not set",
		"tusk.yaml:14: unknown key schedules.next",
		"tusk.yaml:16: enqueue.timeout: is negative",
		"tusk.yaml:17: enqueue.tags: want a list of plain values",
		"TUSK_AUTO_MIGRATE: want true or false",
		"TUSK_TASKS_LIST_LIMTI is not a setting of Tusk; did you mean TUSK_TASKS_LIST_LIMIT?",
		"TUSK_WORK_CONCURRENCY: want a whole number",
	} {
		if n := strings.Count(r.out+r.err, want); n != 1 {
			t.Errorf("told %d times: %s", n, want)
		}
	}
	if strings.Contains(r.out+r.err, "topsecret") {
		t.Error("the password is shown")
	}
	if t.Failed() {
		t.Log(r.out + r.err)
	}
	sh.fails(exitUsage, "invalid_config", []string{"tusk config check", "log_levle"}, "queues", "list")
	sh.must("version")
}

func TestWhatACallMayDoIsNotSaidByAVariable(t *testing.T) {
	sh := newShell(t)
	sh.must("migrate", "up")
	sh.env = append(sh.env, "TUSK_YES=1", "TUSK_TASKS_DELETE_ALL=1")
	sh.fails(exitUsage, "invalid_config", []string{"TUSK_YES", "TUSK_TASKS_DELETE_ALL", "unset the variable"}, "tasks",
		"delete")
	sh.must("queues", "list")
}

func TestAVariableIsForTheCommandThatItNames(t *testing.T) {
	sh := filledShell(t)
	sh.env = append(sh.env, "TUSK_WORK_CONCURRENCY=7")
	sh.must("limits", "set", "mail", "--create", "--per-tenant", "2")
	if got := sh.json("limits", "list")[0]["concurrency"]; got != 0.0 {
		t.Errorf("the variable of work limits a queue to %v", got)
	}
	if got := sh.setting("work.concurrency"); got != "7 from TUSK_WORK_CONCURRENCY" {
		t.Error(got)
	}
	sh.env = append(sh.env, "TUSK_CONCURRENCY=7")
	sh.must("queues", "list")
	sh.fails(exitUsage, "invalid_config", []string{"TUSK_CONCURRENCY: ", "--concurrency of tusk limits set",
		"TUSK_LIMITS_SET_CONCURRENCY"}, "limits", "set", "mail")
}

func TestCheckFindsVariablesThatACommandRefuses(t *testing.T) {
	sh := newShell(t)
	sh.write("secret", "smtps://u:topsecret@mail.example.com", 0o600)
	sh.env = append(sh.env, "TUSK_CONCURRENCY=20", "TUSK_SMTP_FILE=secret", "TUSK_ADDR=:8080", "TUSK_TASKS_DELETE_ALL=1",
		"TUSK_QUEUE=", "TUSK_QUEUEING=x")
	r := sh.run("config", "check")
	if r.status != exitUsage {
		t.Errorf("status %d", r.status)
	}
	for _, want := range []string{
		"TUSK_ADDR does not name its command: rename it to TUSK_DEV_ADDR or TUSK_SERVE_ADDR",
		"TUSK_CONCURRENCY does not name its command: rename it to TUSK_",
		" or TUSK_WORK_CONCURRENCY\n",
		"TUSK_SMTP_FILE does not name its command: rename it to TUSK_SERVE_SMTP_FILE",
		"TUSK_TASKS_DELETE_ALL: --all is only a flag",
		"note: TUSK_QUEUEING is not a setting",
		"4 problems",
	} {
		if n := strings.Count(r.out+r.err, want); n != 1 {
			t.Errorf("told %d times: %s", n, want)
		}
	}
	if t.Failed() {
		t.Log(r.out + r.err)
	}

	sh = newShell(t) // an older version of Tusk may need the other variable
	sh.env = append(sh.env, "TUSK_CONCURRENCY=20", "TUSK_WORK_CONCURRENCY=20")
	if r := sh.run("config", "check"); r.status != 0 || !strings.Contains(r.err, "TUSK_CONCURRENCY is not a setting") {
		t.Errorf("status %d: %s", r.status, r.out+r.err)
	}

	sh = newShell(t) // Kubernetes sets this for a service that is called tusk
	sh.env = append(sh.env, "TUSK_PORT=tcp://10.0.0.1:80")
	if r := sh.run("config", "check"); r.status != 0 || strings.Contains(r.err, "TUSK_PORT") {
		t.Errorf("status %d: %s", r.status, r.out+r.err)
	}
}

func TestAVariableOfAFlagForAFileNamesTheFile(t *testing.T) {
	sh := filledShell(t)
	sh.write("args.json", `{"n":1}`, 0o600)
	sh.env = append(sh.env, "TUSK_ENQUEUE_ARGS_FILE=args.json")
	id := strings.TrimSpace(sh.must("enqueue", "k", "--quiet"))
	if got := sh.must("tasks", "args", id); got != `{"n":1}` {
		t.Errorf("the args are %s", got)
	}
	id = strings.TrimSpace(sh.must("enqueue", "k", `{"n":2}`, "--quiet"))
	if got := sh.must("tasks", "args", id); got != `{"n":2}` {
		t.Errorf("the args are %s, want those of the command", got)
	}
	if got := sh.setting("enqueue.args_file"); got != "args.json from TUSK_ENQUEUE_ARGS_FILE" {
		t.Error(got)
	}
	if r := sh.run("config", "check"); r.status != 0 || strings.Contains(r.err, "TUSK_ENQUEUE_ARGS_FILE") {
		t.Errorf("status %d: %s", r.status, r.err)
	}
	sh.env = append(sh.env, "TUSK_ARGS_FILE=args.json")
	sh.must("enqueue", "k")
	sh.env = append(sh.env, "TUSK_ENQUEUE_ARGS_FILE=")
	sh.fails(exitUsage, "invalid_config", []string{"TUSK_ARGS_FILE: ", "TUSK_ENQUEUE_ARGS_FILE"}, "enqueue", "k")
	sh.write("token", "abc\n", 0o600)
	sh.env = append(sh.env, "TUSK_ARGS_FILE=", "TUSK_TOP_TOKEN_FILE=token") // --token, and not --token-file
	if got := sh.setting("top.token"); got != "*** from TUSK_TOP_TOKEN" {
		t.Error(got)
	}
}

func TestTheCommandLineCountsMoreThanAVariableThatItExcludes(t *testing.T) {
	sh := filledShell(t)
	sh.write("args.json", `{"n":1}`, 0o600)
	sh.write("tasks.jsonl", `{"kind":"a","args":{"n":2}}`+"\n"+`{"kind":"b"}`, 0o600)
	sh.env = append(sh.env, "TUSK_ENQUEUE_ARGS_FILE=args.json")
	sh.must("enqueue", "--from", "tasks.jsonl")
	first := strings.TrimSpace(sh.must("tasks", "list", "--kind", "a", "--quiet"))
	if got := sh.must("tasks", "args", first); got != `{"n":2}` {
		t.Errorf("the args are %s, want those of the file that --from names", got)
	}
	sh.env = append(sh.env, "TUSK_ENQUEUE_ARGS_FILE=", "TUSK_ENQUEUE_FROM=tasks.jsonl", "TUSK_ENQUEUE_DELAY=1h")
	id := strings.TrimSpace(sh.must("enqueue", "c", `{"n":3}`, "--run-at", "2020-01-01T00:00:00Z", "--quiet"))
	if task := sh.json("tasks", "show", id)[0]; task["kind"] != "c" || task["state"] != "available" {
		t.Errorf("the task is %v", task)
	}
	sh.write("tusk.yaml", "tasks:\n  list:\n    limit: 1\n", 0o600)
	if all := sh.json("tasks", "list", "--all"); len(all) != 3 {
		t.Errorf("--all lists %d tasks", len(all))
	}
	sh.env = append(sh.env, "TUSK_ENQUEUE_RUN_AT=2020-01-01T00:00:00Z")
	sh.fails(exitUsage, "usage", []string{"only one can be given: --run-at or --delay"}, "enqueue", "d")
}

func TestEveryVariableSetsOneFlag(t *testing.T) {
	c := &config{flags: map[string]*pflag.Flag{}}
	collectFlags(newRoot(&App{}), "", c.flags)
	names := c.variables()
	slices.Sort(names)
	if one := slices.Compact(slices.Clone(names)); len(one) < len(names) {
		t.Errorf("%d variables for %d flags: %v", len(one), len(names), names)
	}
}

func TestOfAKeyWhoseVariableIsNotSetOnlyThatIsSaid(t *testing.T) {
	sh := newShell(t)
	sh.write("tusk.yaml", "db: ${NOT_SET}\nwork:\n  concurrency: ${NEITHER}\n", 0o600)
	r := sh.run("config", "check")
	if want := "tusk.yaml:1: db: the variable ${NOT_SET} is not set\n" +
		"tusk.yaml:3: work.concurrency: the variable ${NEITHER} is not set\n"; r.out != want {
		t.Errorf("got\n%s\nwant\n%s", r.out, want)
	}
}

func TestAFileThatCannotBeReadIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"tabs":     {"tasks:\n\tlist:\n", "tab"},
		"bad YAML": {"db: [", "line 1"},
		"a list":   {"- db\n", "want keys and values"},
		"a word":   {"hello\n", "want keys and values"},
		"an alias": {"db: &x sqlite:a.db\nconfig: *x\n", "plain value"},
	} {
		t.Run(name, func(t *testing.T) {
			sh := newShell(t)
			sh.write("tusk.yaml", c.text, 0o644)
			sh.fails(exitUsage, "invalid_config", []string{"tusk.yaml", c.want}, "queues", "list")
		})
	}
	sh := newShell(t)
	sh.fails(exitUsage, "invalid_config", []string{"no such file"}, "queues", "list", "--config", "nowhere.yaml")
	sh.fails(exitUsage, "invalid_config", []string{"is a folder"}, "queues", "list", "--config", ".")
	sh.write("empty.yaml", "# nothing\n", 0o644)
	sh.must("config", "check", "--config", "empty.yaml")
}

func TestAnInvalidVariableOfAnotherCommandDoesNoHarm(t *testing.T) {
	sh := filledShell(t)
	sh.env = append(sh.env, "TUSK_TASKS_LIST_LIMIT=many")
	sh.must("queues", "list")
	sh.fails(exitUsage, "invalid_config", []string{"TUSK_TASKS_LIST_LIMIT"}, "tasks", "list")
}
