package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
)

// table is rows of text made from structs.
type table struct {
	heads []string
	right []bool // numbers are aligned to the right
	rows  [][]string
}

// tableOf takes the fields that have one of the tags.
func tableOf[T any](app *App, values []T, tags ...string) *table {
	t := &table{}
	var columns []reflect.StructField
	for _, f := range reflect.VisibleFields(reflect.TypeFor[T]()) {
		for _, tag := range tags {
			if head, ok := f.Tag.Lookup(tag); ok {
				columns = append(columns, f)
				t.heads = append(t.heads, head)
				t.right = append(t.right, isNumber(f.Type))
			}
		}
	}
	for _, value := range values {
		row := make([]string, len(columns))
		for i, f := range columns {
			field := reflect.ValueOf(value).FieldByIndex(f.Index)
			if _, always := f.Tag.Lookup("col"); always || !field.IsZero() {
				row[i] = app.cell(field.Interface())
			}
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// cell says a value in one line.
func (app *App) cell(value any) string {
	if v, ok := value.(interface{ terminal() string }); ok && app.terminal {
		return v.terminal()
	}
	switch v := value.(type) {
	case []string:
		return printable(strings.Join(v, ","))
	case json.RawMessage:
		return printable(string(v))
	case map[string]string:
		var pairs []string
		for _, name := range slices.Sorted(maps.Keys(v)) {
			pairs = append(pairs, name+"="+v[name])
		}
		return printable(strings.Join(pairs, ","))
	case bool:
		return map[bool]string{true: "yes", false: "no"}[v]
	}
	return printable(fmt.Sprint(value))
}

func isNumber(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Int, reflect.Int16, reflect.Int64, reflect.Float64:
		return true
	}
	return t == reflect.TypeFor[seconds]()
}

// align writes the table in columns under a heading.
func (t *table) align(w io.Writer, coloured bool) {
	width := make([]int, len(t.heads))
	for _, row := range append([][]string{t.heads}, t.rows...) {
		for i, text := range row {
			width[i] = max(width[i], utf8.RuneCountInString(text))
		}
	}
	head := t.line(t.heads, width)
	if coloured {
		head = "\x1b[1m" + head + "\x1b[0m"
	}
	fmt.Fprintln(w, head)
	for _, row := range t.rows {
		fmt.Fprintln(w, t.line(row, width))
	}
}

func (t *table) line(row []string, width []int) string {
	var line strings.Builder
	for i, text := range row {
		pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(text))
		if i > 0 {
			line.WriteString("  ")
		}
		if t.right[i] {
			line.WriteString(pad + text)
		} else {
			line.WriteString(text + pad)
		}
	}
	return strings.TrimRight(line.String(), " ")
}

// turn writes each field of the first row on a line of its own, but for empty ones.
func (t *table) turn(w io.Writer, align bool) {
	width := 0
	for _, head := range t.heads {
		width = max(width, len(head))
	}
	for i, head := range t.heads {
		switch text := t.rows[0][i]; {
		case text == "" || text == "-":
		case align:
			fmt.Fprintf(w, "%-*s  %s\n", width, strings.ToLower(head), text)
		default:
			fmt.Fprintf(w, "%s\t%s\n", strings.ToLower(head), text)
		}
	}
}
