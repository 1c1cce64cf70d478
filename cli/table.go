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

	"github.com/tuskqueue/tusk"
)

// table is rows of text made from structs.
type table struct {
	heads []string
	right []bool // numbers are aligned to the right
	rows  [][]string
}

// tableOf uses the fields that have one of the tags.
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

// cell formats a value in one line.
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

// align writes the table in columns under a heading, no wider than the terminal if its width is known: see fit.
func (t *table) align(w io.Writer, coloured bool, most int) {
	t.fit(most)
	width := t.widths()
	head := t.line(t.heads, width, false)
	if coloured {
		head = "\x1b[1m" + head + "\x1b[0m"
	}
	fmt.Fprintln(w, head)
	for _, row := range t.rows {
		fmt.Fprintln(w, t.line(row, width, coloured))
	}
}

func (t *table) widths() []int {
	width := make([]int, len(t.heads))
	for _, row := range append([][]string{t.heads}, t.rows...) {
		for i, text := range row {
			width[i] = max(width[i], utf8.RuneCountInString(text))
		}
	}
	return width
}

const (
	gap      = 2 // between columns
	leastCut = 9 // characters that a cut column keeps: enough for a state
)

// fit makes the table at most most characters wide, by removing what is missed least. Ids keep their last digits,
// which commands accept; empty columns are removed; the widest texts are cut; if that is not enough, the last columns
// are removed. A most of 0 means that the width is unknown.
func (t *table) fit(most int) {
	if most == 0 || t.wide() <= most {
		return
	}
	for i := range t.heads {
		t.shortenIDs(i)
	}
	for i := len(t.heads) - 1; i > 0 && t.wide() > most; i-- {
		if t.isEmpty(i) {
			t.drop(i)
		}
	}
	for over := t.wide() - most; over > 0; over = t.wide() - most {
		width := t.widths()
		widest := -1
		for i := 1; i < len(width); i++ {
			if !t.right[i] && width[i] > leastCut && (widest < 0 || width[i] > width[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			if len(t.heads) == 1 {
				return
			}
			t.drop(len(t.heads) - 1)
			continue
		}
		second := leastCut
		for i := range width {
			if i != widest && !t.right[i] {
				second = max(second, width[i])
			}
		}
		t.cut(widest, max(width[widest]-over, min(second, width[widest]-1), leastCut))
	}
}

// wide returns the length of the longest line.
func (t *table) wide() (n int) {
	for _, w := range t.widths() {
		n += w + gap
	}
	return n - gap
}

// shortenIDs shortens the ids in a column to their last twelve digits.
func (t *table) shortenIDs(i int) {
	for _, row := range t.rows {
		if _, err := tusk.ParseID(row[i]); err != nil && row[i] != "" {
			return
		}
	}
	for _, row := range t.rows {
		row[i] = row[i][max(len(row[i])-12, 0):]
	}
}

func (t *table) isEmpty(i int) bool {
	for _, row := range t.rows {
		if !slices.Contains([]string{"", "-", "0", "no"}, row[i]) {
			return false
		}
	}
	return len(t.rows) > 0
}

func (t *table) drop(i int) {
	t.heads, t.right = slices.Delete(t.heads, i, i+1), slices.Delete(t.right, i, i+1)
	for n := range t.rows {
		t.rows[n] = slices.Delete(t.rows[n], i, i+1)
	}
}

func (t *table) cut(i, most int) {
	for _, row := range append([][]string{t.heads}, t.rows...) {
		if utf8.RuneCountInString(row[i]) > most {
			row[i] = string([]rune(row[i])[:most-1]) + "…"
		}
	}
}

// stateColours are the colours of states that should stand out, the same as on the pages.
var stateColours = map[string]string{"running": "36", "retryable": "33", "completed": "32", "discarded": "31",
	"available": "34"}

func (t *table) line(row []string, width []int, coloured bool) string {
	var line strings.Builder
	for i, text := range row {
		plain := text
		pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(plain))
		if colour := stateColours[plain]; coloured && colour != "" && (t.heads[i] == "STATE" || t.heads[i] == "OUTCOME") {
			text = "\x1b[" + colour + "m" + plain + "\x1b[0m"
		}
		if i > 0 {
			line.WriteString(strings.Repeat(" ", gap))
		}
		if t.right[i] {
			line.WriteString(pad + text)
		} else {
			line.WriteString(text + pad)
		}
	}
	return strings.TrimRight(line.String(), " ")
}

// turn writes each field of the first row on a line of its own, without empty ones.
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
