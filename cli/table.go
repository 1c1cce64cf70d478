package cli

import (
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode/utf8"
)

// table is rows of text made from structs.
type table struct {
	heads []string
	right []bool // numbers are aligned to the right
	rows  [][]string
}

func tableOf[T any](app *App, values []T) *table {
	t := &table{}
	columns := reflect.VisibleFields(reflect.TypeFor[T]())
	for _, f := range columns {
		if head, ok := f.Tag.Lookup("col"); ok {
			t.heads = append(t.heads, head)
			t.right = append(t.right, isNumber(f.Type))
		}
	}
	for _, value := range values {
		var row []string
		for _, f := range columns {
			if _, ok := f.Tag.Lookup("col"); ok {
				row = append(row, app.cell(reflect.ValueOf(value).FieldByIndex(f.Index).Interface()))
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

// turn writes each field of the first row on a line of its own.
func (t *table) turn(w io.Writer, align bool) {
	width := 0
	for _, head := range t.heads {
		width = max(width, len(head))
	}
	for i, head := range t.heads {
		if align {
			fmt.Fprintf(w, "%-*s  %s\n", width, strings.ToLower(head), t.rows[0][i])
		} else {
			fmt.Fprintf(w, "%s\t%s\n", strings.ToLower(head), t.rows[0][i])
		}
	}
}
