package render

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
	"time"
)

// bar is one bar of a plot.
type bar struct {
	name  string
	value float64
	label string
	tusk  bool
}

// plot draws a scenario as bars on a logarithmic scale: tasks per second, or the 99th percentile of
// the waits.
func (r Report) plot(s Scenario) string {
	var bars []bar
	for _, c := range r.Contenders {
		f := figures(s.Runs[c.Key])
		if f.Runs == 0 {
			continue
		}
		b := bar{name: c.Key, value: f.PerSecond, label: thousands(int(f.PerSecond)), tusk: strings.HasPrefix(c.Key, "Tusk")}
		if s.Waits {
			b.value, b.label = float64(max(f.Waits.P99, 1))/float64(time.Microsecond), shown(f.Waits.P99)
		}
		bars = append(bars, b)
	}
	slices.SortStableFunc(bars, func(a, b bar) int {
		if s.Waits {
			return compare(a.value, b.value)
		}
		return compare(b.value, a.value)
	})
	unit := "tasks per second; each line is ten times the one before"
	if s.Waits {
		unit = "99th percentile from due to started; each line is ten times the one before"
	}
	return draw(s.Title, unit, bars)
}

func compare(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

const (
	plotWidth = 760
	nameWidth = 230
	rowHeight = 24
	plotHead  = 54
)

func draw(title, unit string, bars []bar) string {
	lowest, highest := math.Inf(1), 1.0
	for _, b := range bars {
		lowest, highest = min(lowest, b.value), max(highest, b.value)
	}
	from, to := math.Floor(math.Log10(max(lowest, 1)))-0.2, math.Ceil(math.Log10(highest))
	room := float64(plotWidth - nameWidth - 90)
	x := func(value float64) float64 { return nameWidth + room*(math.Log10(max(value, 1))-from)/max(to-from, 1) }
	height := plotHead + rowHeight*len(bars) + 10
	var b strings.Builder
	fmt.Fprintf(&b,
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13" role="img">`+
			"\n", plotWidth, height)
	fmt.Fprintf(&b, `<title>%s</title><rect width="100%%" height="100%%" fill="#fff"/>`+"\n", html.EscapeString(title))
	fmt.Fprintf(&b,
		`<text x="10" y="20" font-size="15" font-weight="bold">%s</text><text x="10" y="38" fill="#666">%s</text>`+"\n",
		html.EscapeString(title), unit)
	for p := math.Ceil(from); p <= to; p++ {
		fmt.Fprintf(&b, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="#ddd"/>`+"\n", x(math.Pow(10, p)),
			x(math.Pow(10, p)), plotHead-6, height-6)
	}
	for i, bar := range bars {
		y, colour := plotHead+i*rowHeight, "#9aa7b5"
		if bar.tusk {
			colour = "#b5651d"
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`, nameWidth-8, y+15, html.EscapeString(bar.name))
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`, nameWidth, y+2,
			max(x(bar.value)-nameWidth, 1), rowHeight-6, colour)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d">%s</text>`+"\n", max(x(bar.value), nameWidth)+6, y+15,
			html.EscapeString(bar.label))
	}
	b.WriteString("</svg>\n")
	return b.String()
}
