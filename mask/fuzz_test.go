package mask

import (
	"encoding/json"
	"testing"
)

// FuzzMask hides fields in arbitrary text. JSON must stay JSON, and no value of a hidden field may
// be left.
func FuzzMask(f *testing.F) {
	for _, text := range []string{`{"password":"x"}`, `[{"Auth_TOKEN":{"a":[1]}},3]`, `{"pass\u0077ord":1}`, `{"secret":`,
		`"token"`, `{"a":1}{"token":2}`, `{"token":1,"token":{"x":2}}`} {
		f.Add([]byte(text))
	}
	m := Mask{Names: Default}
	f.Fuzz(func(t *testing.T, text []byte) {
		got := m.JSON(text)
		if !json.Valid(text) {
			return
		}
		if !json.Valid(got) {
			t.Fatalf("%q became %q", text, got)
		}
		var v any
		if err := json.Unmarshal(got, &v); err != nil {
			t.Fatal(err)
		}
		hiddenAll(t, m, v)
	})
}

func hiddenAll(t *testing.T, m Mask, v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			if m.hides(name) && value != "[hidden]" {
				t.Fatalf("the field %q shows %v", name, value)
			}
			hiddenAll(t, m, value)
		}
	case []any:
		for _, one := range v {
			hiddenAll(t, m, one)
		}
	}
}
