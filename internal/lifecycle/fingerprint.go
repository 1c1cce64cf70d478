package lifecycle

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// Limits on what is kept of a failed attempt's error.
const (
	maxErrorBytes = 16 << 10
	maxTraceBytes = 64 << 10
)

// Clean makes text fit for every engine: valid UTF-8, no NUL, at most limit bytes.
func Clean(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	text = strings.ReplaceAll(text, "\x00", "\uFFFD")
	if len(text) <= limit {
		return text
	}
	const mark = "… (cut)"
	cut := limit - len(mark)
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + mark
}

// Fingerprint groups similar errors. It returns 16 hexadecimal digits that depend on the kind and
// on the first line of the error, without the parts that differ between tasks: quoted parts and
// words that contain a digit (numbers, ids, addresses).
func Fingerprint(kind, text string) string {
	line, _, _ := strings.Cut(text, "\n")
	sum := sha256.Sum256([]byte(kind + "\x00" + skeleton(line)))
	return hex.EncodeToString(sum[:8])
}

func skeleton(line string) string {
	var out strings.Builder
	for line != "" {
		if quote := line[0]; quote == '"' || quote == '\'' || quote == '`' {
			if end := strings.IndexByte(line[1:], quote); end >= 0 {
				out.WriteString("…")
				line = line[end+2:]
				continue
			}
		}
		word := wordLength(line)
		if word == 0 {
			out.WriteByte(line[0])
			line = line[1:]
			continue
		}
		if strings.ContainsAny(line[:word], "0123456789") {
			out.WriteString("#")
		} else {
			out.WriteString(line[:word])
		}
		line = line[word:]
	}
	return out.String()
}

func wordLength(line string) int {
	for i := range len(line) {
		c := line[i]
		if !(c == '-' || c == '_' || c == '.' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' ||
			c >= utf8.RuneSelf) {
			return i
		}
	}
	return len(line)
}
