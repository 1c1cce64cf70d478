package postgres

import (
	"embed"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

//go:embed sql/*.sql rows.sql
var statements embed.FS

// ready holds the statements of all schemas that this process has opened, by the names of the schemas of tables and
// functions, because a program may open a queue many times.
var ready sync.Map // [2]string to map[string]string

// texts returns the statements of the package's files by name. Each begins with a line "-- name: …". In a statement,
// {name} is replaced by the expression of that name in rows.sql; all parameters of such a statement are written as
// ?.
func (s *Store) texts() (map[string]string, error) {
	key := [2]string{s.schema, s.program}
	if found, ok := ready.Load(key); ok {
		return found.(map[string]string), nil
	}
	files, err := fs.Glob(statements, "sql/*.sql")
	if err != nil {
		return nil, err
	}
	rows, err := sections("rows.sql")
	if err != nil {
		return nil, err
	}
	byName := map[string]string{}
	for _, file := range files {
		texts, err := sections(file)
		if err != nil {
			return nil, err
		}
		for name, text := range texts {
			byName[name] = s.inSchema(withRows(text, rows))
		}
	}
	for name, part := range map[string]string{"turns": "heads", "lost_lanes": "line_lanes"} {
		byName[name] = strings.Replace(byName[name], "{"+part+"}", onEachLine(byName[part]), 1)
	}
	ready.Store(key, byName)
	return byName, nil
}

// sections returns the statements of a file by their names.
func sections(file string) (map[string]string, error) {
	text, err := statements.ReadFile(file)
	if err != nil {
		return nil, err
	}
	byName := map[string]string{}
	for _, section := range strings.Split(string(text), "-- name: ")[1:] {
		name, text, _ := strings.Cut(section, "\n")
		byName[name] = strings.TrimSpace(text)
	}
	return byName, nil
}

// withRows inserts expressions into a statement, and numbers its parameters from left to right.
func withRows(text string, rows map[string]string) string {
	full := rowsName.ReplaceAllStringFunc(text, func(found string) string {
		if row, is := rows[found[1:len(found)-1]]; is {
			return row
		}
		return found
	})
	if full == text {
		return text
	}
	n := 0
	return parameter.ReplaceAllStringFunc(full, func(string) string { n++; return "$" + strconv.Itoa(n) })
}

var (
	rowsName  = regexp.MustCompile(`\{\w+\}`)
	parameter = regexp.MustCompile(`\?`)
)

// inSchema replaces the word tusk, before a dot, by the name of the schema of the tables, and
// the word tusk_fn by the name of the schema of the functions.
func (s *Store) inSchema(text string) string {
	var named strings.Builder
	for from := 0; ; {
		next := strings.Index(text[from:], "tusk")
		if next < 0 {
			named.WriteString(text[from:])
			return named.String()
		}
		at := from + next
		named.WriteString(text[from:at])
		rest, begins := text[at:], at == 0 || !inWord(text[at-1])
		switch {
		case begins && strings.HasPrefix(rest, "tusk."):
			named.WriteString(s.schema + ".")
			from = at + len("tusk.")
		case begins && strings.HasPrefix(rest, "tusk_fn") && (len(rest) == len("tusk_fn") || !inWord(rest[len("tusk_fn")])):
			named.WriteString(s.program)
			from = at + len("tusk_fn")
		default:
			named.WriteString("tusk")
			from = at + len("tusk")
		}
	}
}

func inWord(b byte) bool {
	return b == '_' || '0' <= b && b <= '9' || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z'
}
