package builtin

import (
	"errors"
	"strings"
)

// SplitWords splits a command line into words like a POSIX shell, with quotes and backslashes. It
// supports nothing else of a shell: no variables, patterns or pipes.
func SplitWords(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	begun := false
	var quote byte
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case c == 0:
			return nil, errors.New("command has a NUL character")
		case quote == '\'' && c != '\'':
			word.WriteByte(c)
		case c == '\\' && quote != '\'':
			if i++; i == len(line) {
				return nil, errors.New(`command ends with a backslash`)
			}
			if quote == '"' && !strings.ContainsRune("\\\"$`\n", rune(line[i])) {
				word.WriteByte('\\')
			}
			if line[i] != '\n' {
				word.WriteByte(line[i])
				begun = true
			}
		case c == quote && quote != 0:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote, begun = c, true
		case quote == 0 && strings.IndexByte(" \t\r\n", c) >= 0:
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteByte(c)
			begun = true
		}
	}
	if quote != 0 {
		return nil, errors.New("command has a quote that is not closed")
	}
	if begun {
		words = append(words, word.String())
	}
	return words, nil
}
