package tusk_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

const longestLine = 120 // characters; a tab is one

// Lines of code and SQL fit on a screen. Left out are descriptions in struct tags, which cannot be split, and
// migrations, which are never changed.
func TestLinesFitOnAScreen(t *testing.T) {
	files := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "migrations" || d.Name() == "testdata" || d.Name() == "node_modules" ||
			path != "." && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go" && filepath.Ext(path) != ".sql":
			return nil
		}
		files++
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		n := 0
		for line := range bytes.Lines(text) {
			n++
			line = bytes.TrimRight(line, "\r\n")
			if length := utf8.RuneCount(line); length > longestLine && !bytes.Contains(line, []byte(` doc:"`)) {
				t.Errorf("%s:%d has %d characters, more than %d", path, n, length, longestLine)
			}
		}
		return nil
	})
	if err != nil || files < 100 {
		t.Fatalf("%d files were read, %v", files, err)
	}
}
