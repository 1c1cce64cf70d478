// Package argmatch decides whether a task's args match a search, in the database or in an archive.
// It is pure.
package argmatch

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
)

var byPath = regexp.MustCompile(`^([A-Za-z_][\w-]*(?:\.[\w-]+)*)=(.*)$`)

// Matcher parses a search. order.id=17 compares the value at a path. Any other text is searched
// for in the JSON, ignoring case.
func Matcher(text string) func(args []byte) bool {
	if m := byPath.FindStringSubmatch(text); m != nil {
		path, want := strings.Split(m[1], "."), m[2]
		return func(args []byte) bool { return valueAt(args, path) == want }
	}
	part := bytes.ToLower([]byte(text))
	return func(args []byte) bool {
		if bytes.Contains(bytes.ToLower(args), part) {
			return true
		}
		var compact bytes.Buffer
		return json.Compact(&compact, args) == nil && bytes.Contains(bytes.ToLower(compact.Bytes()), part)
	}
}

// valueAt returns the text at a path: the characters of a string, or the JSON of any other value.
// If the path leads nowhere, it returns a NUL, which equals nothing.
func valueAt(args []byte, path []string) string {
	raw := json.RawMessage(args)
	for _, name := range path {
		var fields map[string]json.RawMessage
		if json.Unmarshal(raw, &fields) == nil && fields != nil {
			raw = fields[name]
			continue
		}
		var items []json.RawMessage
		i, err := strconv.Atoi(name)
		if err != nil || json.Unmarshal(raw, &items) != nil || i < 0 || i >= len(items) {
			return "\x00"
		}
		raw = items[i]
	}
	var text string
	switch {
	case len(raw) == 0:
		return "\x00"
	case json.Unmarshal(raw, &text) == nil && raw[0] == '"':
		return text
	}
	return string(bytes.TrimSpace(raw))
}
