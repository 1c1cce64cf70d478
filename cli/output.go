package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// errOutputClosed is the error of a write to stdout after its reader has closed it.
var errOutputClosed = errors.New("stdout is closed")

// output is stdout. Its broken pipe must be distinguishable from those of sockets and commands.
type output struct{ io.Writer }

func (o output) Write(text []byte) (int, error) {
	n, err := o.Writer.Write(text)
	if errors.Is(err, syscall.EPIPE) {
		err = errOutputClosed
	}
	return n, err
}

// printList prints rows of one struct type: JSON Lines with --json, only the first column with --quiet, a table on a
// terminal, and otherwise lines of tab-separated values without a heading.
//
// The struct's tags give the names: `json:"name"` for a field's JSON name, `col:"NAME"` for its column. A field with
// `one:"NAME"` is not in tables; printOne prints it if it is not zero.
func printList[T any](app *App, rows []T) error {
	out := bufio.NewWriter(app.Out)
	if app.flags.json {
		encoder := app.newEncoder(out)
		for _, row := range rows {
			if err := encoder.Encode(row); err != nil {
				return err
			}
		}
		return out.Flush()
	}
	t := tableOf(app, rows, "col")
	switch {
	case app.flags.quiet:
		for _, row := range t.rows {
			fmt.Fprintln(out, row[0])
		}
	case app.terminal:
		t.align(out, app.coloured(), app.columns())
	default:
		for _, row := range t.rows {
			fmt.Fprintln(out, strings.Join(row, "\t"))
		}
	}
	return out.Flush()
}

// printOne prints one struct: an object with --json, only the first field with --quiet, otherwise a line for each
// field.
func printOne[T any](app *App, value T) error {
	out := bufio.NewWriter(app.Out)
	if app.flags.json {
		if err := app.newEncoder(out).Encode(value); err != nil {
			return err
		}
		return out.Flush()
	}
	t := tableOf(app, []T{value}, "col", "one")
	if app.flags.quiet {
		fmt.Fprintln(out, t.rows[0][0])
		return out.Flush()
	}
	t.turn(out, app.terminal)
	return out.Flush()
}

// newEncoder writes JSON. For a terminal, it escapes everything that could move the cursor or hide text.
func (app *App) newEncoder(w io.Writer) *json.Encoder {
	if app.terminal {
		w = escaping{w}
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e
}

// escaping writes each JSON text with one call, so that none is cut within a character.
type escaping struct{ io.Writer }

func (e escaping) Write(text []byte) (int, error) {
	var out []byte
	for _, r := range string(text) {
		if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
			out = fmt.Appendf(out, `\u%04x`, r)
		} else {
			out = utf8.AppendRune(out, r)
		}
	}
	_, err := e.Writer.Write(out)
	return len(text), err
}

// note prints a remark about the data, but not with --quiet or --json.
func (app *App) note(format string, args ...any) {
	if !app.flags.quiet && !app.flags.json {
		fmt.Fprintln(app.Err, app.clean(fmt.Sprintf(format, args...)))
	}
}

// coloured reports whether stdout may be coloured.
func (app *App) coloured() bool {
	return app.terminal && !app.flags.noColor && app.env["NO_COLOR"] == "" && app.env["TERM"] != "dumb"
}

// columns returns the width of the terminal in characters, or 0 if it is unknown.
func (app *App) columns() int {
	if n, err := strconv.Atoi(app.env["COLUMNS"]); err == nil && n > 0 {
		return n
	}
	if file, ok := app.screen().(*os.File); ok && file != nil {
		if n, _, err := term.GetSize(int(file.Fd())); err == nil {
			return n
		}
	}
	return 0
}

// screen returns stdout without the wrapper, because a terminal is recognized by its type.
func (app *App) screen() io.Writer {
	if o, ok := app.Out.(output); ok {
		return o.Writer
	}
	return app.Out
}

func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && file != nil && term.IsTerminal(int(file.Fd()))
}

// printable replaces characters that would move a terminal's cursor or hide text: control characters become spaces or
// a replacement character.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r):
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// instant is a time that prints as RFC 3339 in UTC, as null in JSON if it is zero, and on a terminal as how long ago
// or how far ahead it is.
type instant time.Time

// MarshalJSON implements json.Marshaler.
func (i instant) MarshalJSON() ([]byte, error) {
	if time.Time(i).IsZero() {
		return []byte("null"), nil
	}
	return json.Marshal(i.String())
}

func (i instant) String() string {
	if time.Time(i).IsZero() {
		return ""
	}
	return time.Time(i).UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

func (i instant) terminal() string {
	if time.Time(i).IsZero() {
		return "-"
	}
	if d := time.Until(time.Time(i)); d > 0 {
		return "in " + inWords(d)
	} else {
		return inWords(-d) + " ago"
	}
}

// moment is an instant that a terminal shows as date and time.
type moment time.Time

// MarshalJSON implements json.Marshaler.
func (m moment) MarshalJSON() ([]byte, error) { return instant(m).MarshalJSON() }

func (m moment) String() string { return instant(m).String() }

func (m moment) terminal() string {
	if time.Time(m).IsZero() {
		return "-"
	}
	return time.Time(m).Local().Format("2006-01-02 15:04:05")
}

// seconds is a duration that prints as a number of seconds, and on a terminal with a unit.
type seconds time.Duration

// MarshalJSON implements json.Marshaler.
func (s seconds) MarshalJSON() ([]byte, error) { return []byte(s.String()), nil }

func (s seconds) String() string {
	text := fmt.Sprintf("%.6f", time.Duration(s).Seconds())
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

func (s seconds) terminal() string { return inWords(time.Duration(s)) }

// inWords formats a duration with two or three digits.
func inWords(d time.Duration) string {
	switch {
	case d < time.Microsecond:
		return "0"
	case d < time.Millisecond:
		return fmt.Sprintf("%dµs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd", int(d.Hours())/24)
	}
}
