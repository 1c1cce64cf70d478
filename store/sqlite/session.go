package sqlite

import (
	"context"
	"database/sql/driver"
	"embed"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/store"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

// statements returns the statements of sql/*.sql by name. Each begins with a line "-- name: verb.what".
var statements = sync.OnceValue(func() map[string]string {
	all := map[string]string{}
	files, _ := sqlFiles.ReadDir("sql")
	for _, file := range files {
		text, _ := sqlFiles.ReadFile("sql/" + file.Name())
		for _, section := range strings.Split("\n"+string(text), "\n-- name: ")[1:] {
			name, body, _ := strings.Cut(section, "\n")
			all[strings.TrimSpace(name)] = strings.TrimRight(strings.TrimSpace(body), ";")
		}
	}
	return all
})

// session runs named statements on one connection, or in a user's transaction. Only one goroutine uses it at a time.
type session interface {
	// exec returns the number of rows that it changed.
	exec(ctx context.Context, name string, args ...any) (int64, error)
	// each calls fn for every row, until fn fails.
	each(ctx context.Context, name string, fn func(row) error, args ...any) error
	// dynamic is like each, for a statement without a name.
	dynamic(ctx context.Context, text string, fn func(row) error, args ...any) error
}

// one returns the only row of a statement, or nil if there is none.
func one(ctx context.Context, s session, name string, args ...any) (row, error) {
	var found row
	err := s.each(ctx, name, func(r row) error {
		found = append(row(nil), r...)
		return nil
	}, args...)
	return found, err
}

// row holds the columns of one result row. It is valid until the next row is read.
type row []driver.Value

func (r row) int(i int) int64 {
	switch v := r[i].(type) {
	case int64:
		return v
	case float64:
		return int64(v)
	}
	return 0
}

func (r row) float(i int) float64 {
	if v, ok := r[i].(float64); ok {
		return v
	}
	return float64(r.int(i))
}

func (r row) null(i int) bool { return r[i] == nil }

func (r row) text(i int) string {
	switch v := r[i].(type) {
	case string:
		return v
	case []byte:
		return string(v)
	}
	return ""
}

// blob returns bytes that are not shared.
func (r row) blob(i int) []byte {
	switch v := r[i].(type) {
	case []byte:
		return v
	case string:
		return []byte(v)
	}
	return nil
}

func (r row) id(i int) (id store.ID) {
	copy(id[:], r.blob(i))
	return id
}

func (r row) token(i int) (t store.Token) {
	copy(t[:], r.blob(i))
	return t
}

func (r row) time(i int) time.Time {
	if r[i] == nil {
		return time.Time{}
	}
	return at(r.int(i))
}

// value converts our own types to those of a driver.
func value(arg any) driver.Value {
	switch v := arg.(type) {
	case nil, int64, string, []byte, float64:
		return v
	case int:
		return int64(v)
	case int16:
		return int64(v)
	case store.State:
		return int64(v)
	case store.ID:
		return v[:]
	case store.Token:
		return v[:]
	case time.Time:
		if v.IsZero() {
			return nil
		}
		return micros(v)
	case bool:
		if v {
			return int64(1)
		}
		return int64(0)
	}
	panic(fmt.Sprintf("sqlite: a statement's argument is a %T", arg))
}
