package postgres_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tuskqueue/tusk/store/postgres"
)

var wholeFunction = regexp.MustCompile(
	`(?ms)^create (?:function|procedure) tusk_fn\.(\w+)\((.*?)\)\s+(?:returns|language).*?^[^\n]*\$\$;$`)

// Every function is short enough to be read at a glance. The only exception is exchange, the path of each single
// task, where every call costs time.
func TestFunctionsAreShort(t *testing.T) {
	all := wholeFunction.FindAllStringSubmatch(postgres.FunctionText(), -1)
	if want := strings.Count(postgres.FunctionText(), "\ncreate function ") - 10; len(all) < want {
		t.Fatalf("only %d functions found", len(all))
	}
	for _, f := range all {
		text, name, in := f[0], f[1], 0
		for _, p := range strings.Split(f[2], ", ") {
			if p = strings.TrimSpace(p); p != "" && !strings.HasPrefix(p, "out ") {
				in++
			}
		}
		lines := strings.Count(text, "\n") + 1
		if in > 10 || lines > 70 && name != "exchange" {
			t.Errorf("%s has %d lines and %d parameters", name, lines, in)
		}
	}
}

// What can be a statement of the program is not a function: see docs/design/functions.md.
func TestFunctionsAreFew(t *testing.T) {
	all := regexp.MustCompile(`(?ms)^create (?:function|procedure) tusk_fn\.\w+\(.*?^[^\n]*\$\$;$`).
		FindAllString(postgres.FunctionText(), -1)
	lines := 0
	for _, text := range all {
		if head, _, _ := strings.Cut(text, "$$"); strings.Contains(head, "language plpgsql") {
			lines += strings.Count(text, "\n") + 1
		}
	}
	begun := regexp.MustCompile(`(?m)^create (function|procedure) `).FindAllString(postgres.FunctionText(), -1)
	if len(all) != len(begun) {
		t.Fatalf("%d functions found of %d", len(all), len(begun))
	}
	if t.Logf("%d functions, %d lines of PL/pgSQL", len(all), lines); len(all) > 102 || lines > 2345 {
		t.Errorf("%d functions and %d lines of PL/pgSQL, want at most 102 and 2,345", len(all), lines)
	}
}

// All files share one list of names, so the second of two statements with the same name would replace the first.
func TestNoTwoStatementsHaveTheSameName(t *testing.T) {
	files, err := filepath.Glob("sql/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	in := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^-- name: (.*)$`).FindAllStringSubmatch(string(text), -1) {
			if first, twice := in[m[1]]; twice {
				t.Errorf("%s is in %s and in %s", m[1], first, file)
			}
			in[m[1]] = file
		}
	}
}
