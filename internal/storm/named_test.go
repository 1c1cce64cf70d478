package storm

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEveryTestThatIsNamedExists looks for the tests and clauses that the pages on reliability mention.
func TestEveryTestThatIsNamedExists(t *testing.T) {
	root := filepath.Join("..", "..")
	var source strings.Builder
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		text, err := os.ReadFile(path)
		source.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)`|\"([a-z]+/[^\"\n|]+)\"")
	for _, page := range []string{"docs/design/peer-bugs.md", "docs/design/judges.md", "docs/reliability.md"} {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		all := named.FindAllStringSubmatch(string(text), -1)
		if len(all) == 0 {
			t.Errorf("%s names no tests", page)
		}
		for _, m := range all {
			if what := "func " + m[1] + "("; m[1] != "" && !strings.Contains(source.String(), what) {
				t.Errorf("%s names the test %s, which does not exist", page, m[1])
			}
			if m[2] != "" && !strings.Contains(source.String(), `"`+m[2]+`"`) {
				t.Errorf("%s names the clause %q, which does not exist", page, m[2])
			}
		}
	}
}
