package top

import (
	"fmt"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
)

// A frame is lines of text from the source and from keys, so each line goes through Clean. Colours are put around
// whole lines after that.

// fixed is the number of lines in a frame that are not rows: title, totals, tabs, heading, notice, footer.
const fixed = 6

// room returns how many rows fit on the screen.
func (s *screen) room() int { return max(s.height-fixed, 1) }

// style is how a line looks on a terminal with colours.
type style string

const (
	plain    style = ""
	bold     style = "1"
	dim      style = "2"
	reversed style = "7"
	red      style = "31"
	yellow   style = "33"
)

// frame draws the screen: as many lines as it is high, and none wider than it is.
func (s *screen) frame() string {
	f := frame{screen: s}
	f.line(bold, s.title())
	f.line(plain, s.totals())
	f.line(dim, s.tabs())
	if s.help {
		f.help()
	} else {
		f.table()
	}
	for len(f.lines) < s.height-2 {
		f.line(plain, "")
	}
	f.lines = f.lines[:min(len(f.lines), max(s.height-2, 0))]
	f.notice()
	f.line(dim, s.footer())
	return strings.Join(f.lines[:min(len(f.lines), s.height)], "\n")
}

type frame struct {
	*screen
	lines []string
}

func (f *frame) line(look style, text string) {
	text = ansi.Truncate(f.text.Clean(text), f.width, "…")
	if look != plain && f.text.Colour {
		text = "\x1b[" + string(look) + "m" + text + "\x1b[0m"
	}
	f.lines = append(f.lines, text)
}

func (s *screen) title() string {
	left := "tusk top  " + s.where
	right := s.now.UTC().Format("15:04:05Z")
	if age := s.age(); age >= 2*time.Second {
		right = "as it was " + s.text.Words(age) + " ago"
	}
	gap := s.width - ansi.StringWidth(s.text.Clean(left)) - ansi.StringWidth(right)
	if gap < 2 {
		return right + "  " + left
	}
	return left + strings.Repeat(" ", gap) + right
}

// age returns how old the numbers are.
func (s *screen) age() time.Duration {
	if s.data.At.IsZero() {
		return 0
	}
	return s.now.Sub(s.data.At)
}

func (s *screen) totals() string {
	if s.data.At.IsZero() {
		return "looking …"
	}
	sums, oldest := map[string]int64{}, 0.0
	for _, q := range s.data.Queues {
		oldest = max(oldest, q.Oldest)
		for state, n := range q.Tasks {
			sums[state] += n
		}
	}
	return fmt.Sprintf("available %s  running %s  retryable %s  scheduled %s  oldest %s  workers %d",
		count(sums["available"]), count(sums["running"]), count(sums["retryable"]), count(sums["scheduled"]),
		s.seconds(oldest), len(s.data.Workers))
}

// tabs lists the views, or the path to the current place.
func (s *screen) tabs() string {
	if len(s.trail) == 1 {
		var names []string
		for i, v := range tabs {
			name := fmt.Sprintf("%d %s", i+1, v)
			if v == s.at().view {
				name = "[" + name + "]"
			}
			names = append(names, name)
		}
		return strings.Join(names, "  ")
	}
	way := string(s.trail[0].view)
	for _, p := range s.trail[1:] {
		way += " › " + p.name()
	}
	return way
}

func (p place) name() string {
	var parts []string
	for _, part := range []string{p.filter.Queue, p.filter.Kind, p.filter.Fingerprint, p.filter.State, p.worker, p.task} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, " ")
}

// table draws the rows around the selected one.
func (f *frame) table() {
	t := f.screen.table()
	rows, chosen := f.rows(), 0
	if len(rows) == 0 {
		if f.at().find != "" && f.loaded {
			t.none = "no row has " + f.at().find + " in it"
		}
		f.line(plain, "")
		f.line(plain, t.none)
		return
	}
	chosen = f.index(rows)
	first := max(min(chosen-f.room()/2, len(rows)-f.room()), 0)
	shown := rows[first:min(first+f.room(), len(rows))]
	lines := t.align(shown, f.width-2, f.text.Clean)
	f.line(bold, "  "+lines[0])
	for i, text := range lines[1:] {
		if first+i == chosen {
			f.line(reversed, "> "+text)
		} else {
			f.line(plain, "  "+text)
		}
	}
}

// align lays out rows in columns, the heading first. Columns without any text are left out.
func (t table) align(rows []row, width int, clean func(string) string) []string {
	lines := make([][]string, len(rows)+1)
	widths, total, wide := []int{}, 0, -1
	var columns []column
	for i, c := range t.columns {
		cells, most, empty := []string{c.head}, ansi.StringWidth(c.head), true
		for _, r := range rows {
			cell := clean(r.cells[i])
			cells = append(cells, cell)
			most, empty = max(most, ansi.StringWidth(cell)), empty && cell == ""
		}
		if empty {
			continue
		}
		if c.wide {
			wide = len(widths)
		}
		columns, widths, total = append(columns, c), append(widths, most), total+most
		for n, cell := range cells {
			lines[n] = append(lines[n], cell)
		}
	}
	gap := 2
	if total+2*(len(widths)-1) > width {
		gap = 1
	}
	if over := total + gap*(len(widths)-1) - width; over > 0 && wide >= 0 {
		widths[wide] = max(widths[wide]-over, min(widths[wide], 8))
	}
	texts := make([]string, len(lines))
	for n, cells := range lines {
		for i, cell := range cells {
			cells[i] = fit(cell, widths[i], columns[i].right)
		}
		texts[n] = strings.TrimRight(strings.Join(cells, strings.Repeat(" ", gap)), " ")
	}
	return texts
}

// fit makes a cell as wide as its column.
func fit(cell string, width int, right bool) string {
	cell = ansi.Truncate(cell, width, "…")
	space := strings.Repeat(" ", max(width-ansi.StringWidth(cell), 0))
	if right {
		return space + cell
	}
	return cell + space
}

// notice draws the line above the footer: a question, the filter, an error, or the result of a change.
func (f *frame) notice() {
	p := f.at()
	switch {
	case f.ask != nil:
		f.line(yellow, f.ask.String()+"? y/n")
	case f.typing:
		f.line(plain, "/"+p.find+"_")
	case f.trouble != "":
		f.line(red, "cannot look: "+f.trouble)
	case f.said() != "":
		f.line(yellow, f.said())
	default:
		f.line(plain, "")
	}
}

func (f *frame) said() string {
	if f.screen.notice == "" && f.at().find != "" {
		return "only rows with " + f.at().find + " (esc shows all)"
	}
	return f.screen.notice
}

// footer lists the keys that work here.
func (s *screen) footer() string {
	var keys []string
	switch p := s.at(); {
	case s.ask != nil:
		return "y do it  n leave it"
	case s.typing:
		return "enter keep the filter  esc show all"
	case s.help:
		return "any key: back  q quit"
	case p.view == queuesView:
		keys = []string{"enter tasks", "p pause/resume"}
	case p.view == taskView:
		keys = []string{"r retry", "esc back"}
	case p.view == tasksView && p.worker != "":
		keys = []string{"enter look", "r retry", "esc back"}
	case p.view == tasksView:
		keys = []string{"enter look", "r retry", "p pause", "s state", "esc back"}
	case p.view == runningView:
		keys = []string{"enter look", "r retry"}
	default:
		keys = []string{"enter tasks"}
	}
	if len(s.trail) == 1 {
		keys = append(keys, "1-5 view")
	}
	return strings.Join(append(keys, "/ filter", "? help", "q quit"), "  ")
}

func (f *frame) help() {
	for _, text := range []string{
		"1-5, tab   queues, kinds, workers, errors, what runs",
		"↑ ↓ j k    choose a row; PgUp, PgDn, Home, End",
		"enter      open a row: a queue's tasks, a task and why it does not run",
		"esc        back",
		"s          tasks of the next state",
		"/          show only rows with a text; esc shows all",
		"p          pause a queue, or end its pause; asks first",
		"r          retry a task; asks first",
		"q          quit",
		"",
		"OLDEST     how long the oldest available task has been due",
		"IN/M       tasks that arrived within the last minute, or since the start;",
		"           - for the first 10 s",
		"OUT/M      attempts that ended within the last full minute, FAIL/M failed",
		"WAIT, RUN  median and 95th percentile of that minute: at most a fifth too high",
	} {
		f.line(plain, text)
	}
}
