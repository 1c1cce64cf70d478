package render

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/bench/harness"
)

// Line describes a run in one line, for progress output.
func Line(s harness.Sample) string {
	if s.Void != "" {
		return "VOID: " + s.Void
	}
	return fmt.Sprintf("%8.0f tasks/s  %6d tasks  server %.1f us  client %.1f us  p50 %v  p99 %v", perSecond(s), s.Tasks,
		float64(s.ServerCPU)/1e3/float64(s.Tasks), float64(s.ClientCPU)/1e3/float64(s.Tasks), rounded(s.Waits.P50),
		rounded(s.Waits.P99))
}

func rounded(d time.Duration) time.Duration {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond)
	case d < 10*time.Millisecond:
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(time.Millisecond)
}

// Text writes everything as Markdown.
func Text(w io.Writer, r Report) error {
	_, err := io.WriteString(w, r.markdown())
	return err
}

func (r Report) markdown() string {
	var b strings.Builder
	size := "The short benchmark (`make bench`)"
	if r.Full {
		size = "The full benchmark (`make bench-full`)"
	}
	fmt.Fprintf(&b, "%s, %s, %v long: %s. Other programs' load on the machine: %.1f to %.1f, median %.1f. ", size,
		r.Began.Format("2 January 2006"), r.Ended.Sub(r.Began).Round(time.Second), r.Machine, slices.Min(append(r.Loads, 99)),
		slices.Max(append(r.Loads, 0)), median(append(r.Loads, 0)))
	fmt.Fprintf(&b,
		"Medians of up to %d interleaved runs, each in an empty database and a new process; ratios are medians of ratios "+
			"of runs of the same round. 80 bytes of args; "+
			"batches of 500, 100 handlers, 2 producers, where nothing else is said.\n\n", r.Rounds)
	for _, name := range slices.Sorted(keys(r.Servers)) {
		fmt.Fprintf(&b, "- %s %s\n", name, r.Servers[name])
	}
	r.summary(&b)
	for _, s := range r.Scenarios {
		r.scenario(&b, s)
	}
	r.settings(&b)
	return b.String()
}

func keys(m map[string]string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// summary says how many times better Tusk is, scenario by scenario: in speed, and in processor
// time, which depends less on what else the machine does.
func (r Report) summary(b *strings.Builder) {
	r.comparison(b,
		"Tusk's tasks per second over the others', on the same server where there is one (below 1: the other is faster):",
		func(tusk, other harness.Sample) float64 { return perSecond(tusk) / perSecond(other) })
	r.comparison(b,
		"The others' processor time per task, of server and client together, over Tusk's (below 1: the other takes less):",
		func(tusk, other harness.Sample) float64 { return processor(other) / processor(tusk) })
}

func processor(s harness.Sample) float64 { return float64(s.ServerCPU+s.ClientCPU) / float64(s.Tasks) }

func (r Report) comparison(b *strings.Builder, title string, better func(tusk, other harness.Sample) float64) {
	var speeds []Scenario
	for _, s := range r.Scenarios {
		if !s.Waits {
			speeds = append(speeds, s)
		}
	}
	fmt.Fprintf(b, "\n%s\n\n| |", title)
	for _, s := range speeds {
		fmt.Fprintf(b, " %s |", s.Name)
	}
	fmt.Fprintf(b, "\n|---|%s\n", strings.Repeat("---:|", len(speeds)))
	for _, c := range r.Contenders {
		if c.NotRun != "" || c.Key == r.firstOf(c) {
			continue
		}
		fmt.Fprintf(b, "| %s |", c.Key)
		for _, s := range speeds {
			fmt.Fprintf(b, " %s |", s.times(ratio(s.Runs[r.firstOf(c)], s.Runs[c.Key], better), c.Key))
		}
		b.WriteString("\n")
	}
}

// times says how many times better Tusk is than another contender.
func (s Scenario) times(ratio float64, key string) string {
	switch {
	case slices.Contains(s.Cannot, key):
		return "n/a"
	case len(s.Runs[key]) == 0:
		return "" // set aside
	case ratio == 0:
		return "void"
	case ratio >= 10:
		return fmt.Sprintf("%.0f", ratio)
	case ratio >= 1:
		return fmt.Sprintf("%.1f", ratio)
	}
	return fmt.Sprintf("%.2f", ratio)
}

func (r Report) scenario(b *strings.Builder, s Scenario) {
	fmt.Fprintf(b, "\n## %s\n\n%s\n\n", s.Title, s.What)
	if s.Waits {
		b.WriteString(
			"| | p50 | p99 | p99.9 | longest | tasks/s | tasks | server CPU | client CPU " +
				"|\n|---|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	} else {
		b.WriteString(
			"| | tasks/s | tasks | server CPU | client CPU | client memory | log | dead rows | growth " +
				"|\n|---|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	}
	var notes []string
	runs := r.Rounds
	for _, c := range r.Contenders {
		samples, ran := s.Runs[c.Key]
		if !ran {
			continue
		}
		f := figures(samples)
		runs = min(runs, len(samples))
		if f.Void != "" {
			notes = append(notes, fmt.Sprintf("%s: %d of %d runs void: %s", c.Key, len(samples)-f.Runs, len(samples),
				oneLine(f.Void)))
		}
		if f.Again > 0 {
			notes = append(notes, fmt.Sprintf("%s ran %d tasks more than once", c.Key, f.Again))
		}
		if s.Name == "history" && f.Runs > 0 {
			notes = append(notes, fmt.Sprintf("%s had run %s tasks before", c.Key, thousands(f.History)))
		}
		b.WriteString(f.row(c, s.Waits))
	}
	if len(s.Cannot) > 0 {
		notes = append(notes, "n/a: "+strings.Join(s.Cannot, "; "))
	}
	if len(s.Aside) > 0 {
		notes = append(notes, "only in the full benchmark: "+strings.Join(s.Aside, "; "))
	}
	if runs < r.Rounds {
		notes = append(notes, fmt.Sprintf("there was time for %d of %d runs of each", runs, r.Rounds))
	}
	if len(notes) > 0 {
		b.WriteString("\n")
	}
	for _, note := range notes {
		fmt.Fprintf(b, "- %s\n", note)
	}
}

func (f Figures) row(c Contender, waits bool) string {
	cells := []string{c.Key}
	if strings.HasPrefix(c.Key, "Tusk") {
		cells[0] = "**" + c.Key + "**"
	}
	server := fmt.Sprintf("%.1f µs", f.ServerCPU)
	if c.Server == "SQLite" {
		server = "none"
	}
	switch {
	case f.Runs == 0:
		cells = append(cells, "void")
	case waits:
		cells = append(cells, shown(f.Waits.P50), shown(f.Waits.P99), shown(f.Waits.P999), shown(f.Waits.Max),
			thousands(int(f.PerSecond)), thousands(f.Tasks), server, fmt.Sprintf("%.1f µs", f.ClientCPU))
	default:
		cells = append(cells, thousands(int(f.PerSecond)), thousands(f.Tasks), server, fmt.Sprintf("%.1f µs", f.ClientCPU),
			fmt.Sprintf("%d MB", f.Memory>>20), perTask(f.WAL, "%.0f B"), perTask(f.Dead, "%.2f"),
			fmt.Sprintf("%.0f B", f.Growth))
	}
	return "| " + strings.Join(cells, " | ") + strings.Repeat(" |", 9-len(cells)) + " |\n"
}

func perTask(value float64, format string) string {
	if value < 0 {
		return ""
	}
	return fmt.Sprintf(format, value)
}

func shown(d time.Duration) string { return rounded(d).String() }

func oneLine(text string) string {
	return strings.NewReplacer("\n", " ", "|", "/").Replace(text[:min(len(text), 200)])
}

func thousands(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func (r Report) settings(b *strings.Builder) {
	b.WriteString(
		"\n## Who was run, and how\n\nRound trips and connections were counted by a relay, in a run of 1,000 tasks " +
			"produced and consumed that was not timed.\n\n" +
			"| | version | settings | round trips per task | connections |\n|---|---|---|---:|---:|\n")
	for _, c := range r.Contenders {
		if c.NotRun != "" {
			fmt.Fprintf(b, "| %s | %s | not run: %s | | |\n", c.Key, c.Version, oneLine(c.NotRun))
			continue
		}
		trips, connections := fmt.Sprintf("%.3f", c.RoundTrips), fmt.Sprint(c.Connections)
		if c.Server == "SQLite" {
			trips, connections = "", ""
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", c.Key, c.Version, c.Settings, trips, connections)
	}
}
