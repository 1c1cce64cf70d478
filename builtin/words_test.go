package builtin_test

import (
	"slices"
	"testing"

	"github.com/tuskqueue/tusk/builtin"
)

func TestACommandLineIsSplitAsAShellSplitsWords(t *testing.T) {
	for line, want := range map[string][]string{
		"":                      nil,
		"  \t ":                 nil,
		"ls":                    {"ls"},
		" ls  -l\t/tmp ":        {"ls", "-l", "/tmp"},
		`echo "a b" 'c d'`:      {"echo", "a b", "c d"},
		`echo a\ b`:             {"echo", "a b"},
		`echo "" ''`:            {"echo", "", ""},
		`--name="x y"z`:         {"--name=x yz"},
		`'it'"'"'s'`:            {"it's"},
		`"a\"b\\c\d"`:           {`a"b\c\d`},
		`'a\b'`:                 {`a\b`},
		`echo $HOME * ; | > x`:  {"echo", "$HOME", "*", ";", "|", ">", "x"},
		"a \"b\nc\" d\\\ne":     {"a", "b\nc", "de"},
		`echo "größer" ünïcödé`: {"echo", "größer", "ünïcödé"},
		`sh -c 'exit 75'`:       {"sh", "-c", "exit 75"},
	} {
		got, err := builtin.SplitWords(line)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q %v, want %q", line, got, err, want)
		}
	}
	for _, line := range []string{`"open`, `'open`, `end\`, "nul\x00"} {
		if words, err := builtin.SplitWords(line); err == nil {
			t.Errorf("%q was split into %q", line, words)
		}
	}
}
