package cbfake

import (
	"bytes"
	"encoding/json"
	"strconv"
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

// split splits a path into names and array positions: a.`b.c`[0]. docs.couchbase.com: "Sub-Document
// Operations", path syntax.
func split(path string) (parts []any, ok bool) {
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
		case '[':
			flush()
			end := strings.IndexByte(path[i:], ']')
			if end < 0 {
				return nil, false
			}
			n, err := strconv.Atoi(path[i+1 : i+end])
			if err != nil {
				return nil, false
			}
			parts = append(parts, n)
			i += end
		default:
			name.WriteByte(path[i])
		}
	}
	flush()
	return parts, true
}

// find returns the value at a path.
func find(v any, parts []any) (any, memd.StatusCode) {
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			m, ok := v.(map[string]any)
			if !ok {
				return nil, memd.StatusSubDocPathMismatch
			}
			if v, ok = m[p]; !ok {
				return nil, memd.StatusSubDocPathNotFound
			}
		case int:
			a, ok := v.([]any)
			if !ok {
				return nil, memd.StatusSubDocPathMismatch
			}
			if p < 0 {
				p += len(a)
			}
			if p < 0 || p >= len(a) {
				return nil, memd.StatusSubDocPathNotFound
			}
			v = a[p]
		}
	}
	return v, 0
}
