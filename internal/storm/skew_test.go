//go:build unix

package storm

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// wrongBy is the environment variable that sets the clock of a program built with buildWithWrongClock: ahead or
// behind, by a day.
const wrongBy = "STORM_CLOCK"

// buildWithWrongClock builds this test binary with a clock that can be wrong, which is not possible otherwise for a
// Go program. The change to Go's package time exists only for the compiler.
func buildWithWrongClock(t *testing.T) string {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Logf("F17 cannot strike: %v", err)
		return ""
	}
	file := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	return build(t, ".", []change{
		{file, "	sec, nsec, mono := runtimeNow()\n	if mono == 0 {",
			"	sec, nsec, mono := runtimeNow()\n	sec += wrong\n	if mono == 0 {"},
		{file, "import (\n", `import (
	"syscall"
`},
		{file, "// Now returns", `var wrong = func() int64 {
	switch by, _ := syscall.Getenv("` + wrongBy + `"); by {
	case "ahead":
		return 24 * 60 * 60
	case "behind":
		return -24 * 60 * 60
	}
	return 0
}()

// Now returns`},
	})
}

// change is a change to a source file, only for the compiler: no file is changed.
type change struct{ file, old, new string }

// build builds the test binary of a package with changes.
func build(t *testing.T, of string, changes []change) string {
	t.Helper()
	dir := t.TempDir()
	texts := map[string]string{}
	for _, c := range changes {
		if texts[c.file] == "" {
			text, err := os.ReadFile(c.file)
			if err != nil {
				t.Fatal(err)
			}
			texts[c.file] = string(text)
		}
		if !strings.Contains(texts[c.file], c.old) {
			t.Fatalf("%s has no such text: %s", c.file, c.old)
		}
		texts[c.file] = strings.ReplaceAll(texts[c.file], c.old, c.new)
	}
	files := map[string]string{}
	for file, text := range texts {
		files[file] = filepath.Join(dir, filepath.Base(file))
		if err := os.WriteFile(files[file], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list, program := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "storm.test")
	overlay, err := json.Marshal(map[string]any{"Replace": files})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "test", "-c", "-overlay", list, "-o", program, of).CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return program
}
