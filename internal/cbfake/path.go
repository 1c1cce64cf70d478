package cbfake

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/couchbase/gocbcore/v10/memd"
)

// decode decodes JSON. Numbers keep their text.
func decode(text []byte) (v any, ok bool) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return v, d.Decode(&v) == nil
}

func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v)
	return bytes.TrimRight(b.Bytes(), "\n")
}

// root returns the decoded document.
func (v *version) root() (any, bool) {
	if v.tree == nil {
		tree, ok := decode(v.value)
		if !ok {
			return nil, false
		}
		v.tree = tree
	}
	return v.tree, true
}

func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, x := range v {
			m[k] = clone(x)
		}
		return m
	case []any:
		a := make([]any, len(v))
		for i, x := range v {
			a[i] = clone(x)
		}
		return a
	}
	return v
}

// split splits a path into names: a.`b.c`. docs.couchbase.com: "Sub-Document Operations", path
// syntax.
func split(path string) (parts []string) {
	var name strings.Builder
	flush := func() {
		if name.Len() > 0 {
			parts = append(parts, name.String())
			name.Reset()
		}
	}
	for i := 0; i < len(path); i++ {
		switch path[i] {
		case '.':
			flush()
		case '`':
			for i++; i < len(path) && path[i] != '`'; i++ {
				name.WriteByte(path[i])
			}
		default:
			name.WriteByte(path[i])
		}
	}
	flush()
	return parts
}

// find returns the value at a path.
func find(v any, parts []string) (any, memd.StatusCode) {
	for _, p := range parts {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, memd.StatusSubDocPathMismatch
		}
		if v, ok = m[p]; !ok {
			return nil, memd.StatusSubDocPathNotFound
		}
	}
	return v, 0
}
