package sqlitefile

import (
	"strings"
	"testing"
)

func FuzzDatabaseURL(f *testing.F) {
	for _, dsn := range []string{"tusk.db", "sqlite:tusk.db", "sqlite:///a/b.db", "sqlite://host/b.db", "file:x?mode=ro",
		"sqlite::memory:", "sqlite:%zz", "sqlite:a%00b", "a?%zz", ""} {
		f.Add(dsn)
	}
	f.Fuzz(func(t *testing.T, dsn string) {
		path, query, err := parse(dsn)
		if err == nil && (path == "" || strings.ContainsRune(path, 0) || path == ":memory:" ||
			query.Get("mode") == "memory") {
			t.Fatalf("%q opens %q with %v", dsn, path, query)
		}
	})
}
