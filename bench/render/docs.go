package render

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Docs writes the tables into bench-results.md in folder, between its two marks, and the plots into
// its images.
func Docs(folder string, r Report) error {
	file := filepath.Join(folder, "bench-results.md")
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("docs: %w", err)
	}
	section := "bench"
	if r.Full {
		section = "bench-full"
	}
	plots, err := writePlots(filepath.Join(folder, "images"), section, r)
	if err != nil {
		return fmt.Errorf("docs: %w", err)
	}
	changed, err := replaceBetween(string(text), section, plots+r.markdown())
	if err != nil {
		return fmt.Errorf("docs: %s: %w", file, err)
	}
	return os.WriteFile(file, []byte(changed), 0o644)
}

// replaceBetween replaces the text between the marks of a section.
func replaceBetween(whole, section, text string) (string, error) {
	begin, end := "<!-- "+section+": begin, generated -->\n", "<!-- "+section+": end -->\n"
	before, rest, found := strings.Cut(whole, begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return "", fmt.Errorf("has no lines %q and %q", strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return before + begin + "\n" + strings.TrimSpace(text) + "\n\n" + end + after, nil
}

// plotted lists the scenarios that have a plot.
var plotted = []string{"together", "held", "rate"}

func writePlots(folder, section string, r Report) (links string, err error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	for _, s := range r.Scenarios {
		for _, name := range plotted {
			if s.Name != name {
				continue
			}
			file := section + "-" + name + ".svg"
			if err := os.WriteFile(filepath.Join(folder, file), []byte(r.plot(s)), 0o644); err != nil {
				return "", err
			}
			links += fmt.Sprintf("![%s](images/%s)\n\n", s.Title, file)
		}
	}
	return links, nil
}
