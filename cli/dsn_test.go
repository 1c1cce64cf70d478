package cli

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestADatabaseURLIsReadByItsScheme(t *testing.T) {
	for text, want := range map[string]dsn{
		"sqlite:tusk.db":                {engine: "sqlite", path: "tusk.db"},
		"sqlite:///var/lib/tusk.db":     {engine: "sqlite", path: "/var/lib/tusk.db"},
		"sqlite://tusk.db":              {engine: "sqlite", path: "tusk.db"},
		"sqlite:/var/lib/tusk.db":       {engine: "sqlite", path: "/var/lib/tusk.db"},
		"SQLite:tusk.db":                {engine: "sqlite", path: "tusk.db"},
		"file:a%20b.db?cache=shared":    {engine: "sqlite", path: "a b.db"},
		"data/tusk.sqlite3":             {engine: "sqlite", path: "data/tusk.sqlite3"},
		"postgres://u:p@h:5432/db":      {engine: "postgres"},
		"postgresql://[::1]:5432/db":    {engine: "postgres"},
		"postgres://h1:5432,h2:5433/db": {engine: "postgres"},
		"ledgers: postgres://h1/db":     {engine: "ledgers"},
		"ledgers: postgres://u:p@h1/db postgresql://h2,h3/db?target_session_attrs=read-write": {engine: "ledgers"},
		"postgres:///db?host=/run/pg":  {engine: "postgres"},
		"postgres://u:p%40%2F%23@h/db": {engine: "postgres"},
		"mysql://u:p@h:3306/db":        {engine: "mysql"},
		"mariadb://u@h/db":             {engine: "mysql"},
	} {
		got, err := parseDSN(text)
		if err != nil || got.engine != want.engine || got.path != want.path {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

func TestABadDatabaseURLIsRefusedWithoutShowingIt(t *testing.T) {
	sh := newShell(t)
	sh.write("folder/file", "x", 0o644)
	sh.write("text.db", "this is no database, and long enough not to be one", 0o644)
	for text, hint := range map[string]string{
		"   ":                                        "sqlite:tusk.db",
		"tusk":                                       "sqlite:FILE",
		"sqlit:tusk.db":                              "did you mean sqlite?",
		"postgress://u:topsecret@h/db":               "did you mean postgres?",
		"oracle://u:topsecret@h/db":                  "sqlite:FILE",
		"postgres:h/db":                              "sqlite:FILE",
		"postgres://u:topsecret@h:70000/db":          "1 to 65535",
		"postgres://u:topsecret@h:0/db":              "1 to 65535",
		"postgres://u:topsecret@h:abc/db":            "1 to 65535",
		"postgres://u:topsecret@x@h/db":              "%40",
		"postgres://u:topsecret/x@h/db":              "%2F",
		"postgres://u:topsecret#x@h/db":              "%23",
		"postgres://u:topsecret%zz@h/db":             "%25",
		"postgres://u:topsecret@::1:5432/db":         "[::1]:5432",
		"sqlite:":                                    "name a file",
		"sqlite::memory:":                            "name a file",
		"ledgers:":                                   "postgres://host2/database",
		"ledgers: mysql://u:topsecret@h/db":          "one for each server",
		"ledgers: postgres://u:topsecret@h:70000/db": "1 to 65535",
		"sqlite:x.db?mode=memory":                    "name a file",
		"sqlite:x.db?mode=ro":                        "leave mode=ro out",
		"sqlite:x%zz.db":                             "%25",
		"sqlite://host/x.db":                         "sqlite:///",
		"sqlite:folder":                              "folder/tusk.db",
		"sqlite:nowhere/at/all/tusk.db":              "mkdir -p",
		"sqlite:text.db":                             "another file",
		"sqlite:folder/file/tusk.db":                 "permissions",
	} {
		r := sh.run("queues", "list", "--db", text)
		if r.status != exitUsage || !strings.HasPrefix(r.err, "error[invalid_dsn]: ") || !strings.Contains(r.err, hint) {
			t.Errorf("%q: status %d, %s want %q in it", text, r.status, r.err, hint)
		}
		if strings.Contains(r.out+r.err, "topsecret") {
			t.Errorf("%q: the password is shown: %s", text, r.err)
		}
	}
	sh.fails(exitUnavailable, "unavailable", []string{"coordinator"}, "queues", "list", "--db",
		"citus://u:topsecret@127.0.0.1:1/db")
}

func TestPasswordsAreNeverShown(t *testing.T) {
	sh := newShell(t)
	const db = "postgres://u:topsecret@127.0.0.1:1/db?sslpassword=topsecret&sslmode=disable"
	for _, args := range [][]string{
		{"tasks", "list", "--db", db},
		{"config", "show", "--db", db},
		{"config", "show", "--json", "--db", db},
		{"migrate", "up", "--db", db},
		{"enqueue", "x", "--db", db, "--log-level", "debug"},
		{db},
		{"tasks", db},
		{"tasks", "show", db, "--db", db},
		{"tasks", "list", "--limit", db},
	} {
		if r := sh.run(args...); strings.Contains(r.out+r.err, "topsecret") {
			t.Errorf("tusk %s: %s%s", strings.Join(args, " "), r.out, r.err)
		}
	}
	sh.fails(exitUnavailable, "unavailable", nil, "tasks", "list", "--db", db)
}

func TestSecretsAreFoundAsWrittenAndAsMeant(t *testing.T) {
	got := dsnSecrets("postgres://u:se%40cret@h/db")
	if !slices.Contains(got, "se%40cret") || !slices.Contains(got, "se@cret") {
		t.Errorf("%q", got)
	}
	got = dsnSecrets("ledgers: postgres://u:first@h1/db postgres://u:second@h2/db")
	if !slices.Contains(got, "first") || !slices.Contains(got, "second") {
		t.Errorf("%q", got)
	}
	if got := hideDSN("ledgers: postgres://u:first@h1/db postgres://u:second@h2/db"); strings.Contains(got, "first") ||
		strings.Contains(got, "second") {
		t.Error(got)
	}
	const two = "ledgers: postgres://u:***@h1/db postgres://u@h2/db"
	if got := hideDSN("ledgers: postgres://u:first@h1/db postgres://u@h2/db"); got != two {
		t.Error(got)
	}
	if got := mask(`cannot connect to "postgres://u:a b@h"; host=x password='x y' user=u`); strings.Contains(got, "x y") {
		t.Error(got)
	}
}

func TestEveryProblemOfADatabaseURLIsAProblem(t *testing.T) {
	_, err := parseDSN("nope")
	if p := (*Problem)(nil); !errors.As(err, &p) || p.Hint == "" || p.Exit != exitUsage {
		t.Errorf("%#v", err)
	}
}
