//go:build unix

package storm

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tuskqueue/tusk"
)

// counted are the counts that have a column in the file of results.
var counted = []string{"kill of a worker", "kill of a producer", "kill of the server", "kill of a backend",
	"end of a session", "power cut", "lost answer", networkCut, "late request", "failover"}

// report logs what the storm did, fails the test if an invariant was violated, and appends a line to the file of
// results.
func (s *storm) report() {
	var counts, struck []string
	for _, what := range slices.Sorted(maps.Keys(s.counts)) {
		counts = append(counts, fmt.Sprintf("%d × %s", s.counts[what], what))
	}
	for _, code := range slices.Sorted(maps.Keys(s.struck)) {
		struck = append(struck, fmt.Sprintf("%s × %d", code, s.struck[code]))
	}
	s.t.Logf("%.0f tasks/s before the first fault; %s; faults: %s", s.rate, strings.Join(counts, ", "),
		strings.Join(struck, ", "))
	codes := map[string]int{}
	for _, v := range s.violations {
		code, _, _ := strings.Cut(v, ":")
		if codes[code]++; codes[code] <= 10 { // so that many of one kind do not hide the others
			s.t.Error(v)
		}
	}
	if len(s.violations) > 0 {
		s.t.Errorf("in all %v", codes)
	}
	name := os.Getenv(envResults)
	if name == "" {
		return
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	var columns strings.Builder
	for _, what := range counted {
		fmt.Fprintf(&columns, "%d | ", s.counts[what])
	}
	version, _, _ := strings.Cut(s.ground.version, " (")
	if s.ground.bouncer != nil {
		version += " behind pgbouncer"
	}
	fmt.Fprintf(f, "| %s | %s | %s | %d | %v | %.0f | %s%d | %s |\n", time.Now().UTC().Format("2006-01-02 15:04"),
		tusk.Version(), version, s.seed, s.lasts, s.rate, columns.String(), len(s.violations), strings.Join(struck, ", "))
}
