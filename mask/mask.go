// Package mask hides passwords and tokens in the JSON of tasks, which it recognizes by the names of
// their fields.
//
// It is pure. The server and its pages mask all args and outputs that they show, and searches in
// args do not match masked values.
package mask

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"strings"
)

// Default lists parts of field names. Values of fields with such names are hidden, in any case.
var Default = []string{"password", "passwd", "secret", "token", "authorization", "api_key", "apikey",
	"private_key", "cookie",
	"pwd", "passphrase", "credential"}

// Mask hides values. The zero value hides nothing.
type Mask struct {
	Names []string `json:"names,omitempty"` // parts of names, in lower case
	All   bool     `json:"all,omitempty"`   // hide everything
}

const hidden = `"[hidden]"`

// JSON returns text with the values of masked fields replaced. Everything else stays byte for byte,
// including numbers that are too long for other programs. Text that is not JSON is hidden as a
// whole if it may contain a masked name.
func (m Mask) JSON(text []byte) []byte {
	switch {
	case len(text) == 0:
		return text
	case m.All:
		return []byte(hidden)
	case !m.mentioned(text):
		return text
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var out bytes.Buffer
	var last int64 // text is copied up to here
	if err := m.value(d, text, &out, &last); err != nil {
		return []byte(hidden)
	}
	if _, err := d.Token(); err != io.EOF { // there is more than one value
		return []byte(hidden)
	}
	out.Write(text[last:])
	return out.Bytes()
}

// Step returns the text of a log line about a step: its name, a space and its result, which is masked. The name of the
// step counts as the name of a field.
func (m Mask) Step(text string) string {
	name, result, _ := strings.Cut(text, " ")
	if m.hides(name) {
		return name + " " + hidden
	}
	return name + " " + string(m.JSON([]byte(result)))
}

// Text returns the fields with the values of masked names replaced.
func (m Mask) Text(fields map[string]string) map[string]string {
	shown := maps.Clone(fields)
	for name := range shown {
		if m.All || m.hides(name) {
			shown[name] = "[hidden]"
		}
	}
	return shown
}

// mentioned is a cheap check whether any name could occur. Escapes could spell any name.
func (m Mask) mentioned(text []byte) bool {
	if len(m.Names) == 0 {
		return false
	}
	if bytes.Contains(text, []byte(`\u`)) {
		return true
	}
	lower := bytes.ToLower(text)
	for _, n := range m.Names {
		if bytes.Contains(lower, []byte(n)) {
			return true
		}
	}
	return false
}

func (m Mask) hides(name string) bool {
	name = strings.ToLower(name)
	for _, n := range m.Names {
		if strings.Contains(name, n) {
			return true
		}
	}
	return false
}

func (m Mask) value(d *json.Decoder, text []byte, out *bytes.Buffer, last *int64) error {
	token, err := d.Token()
	if err != nil {
		return err
	}
	switch token {
	case json.Delim('{'):
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return err
			}
			if !m.hides(name.(string)) {
				if err := m.value(d, text, out, last); err != nil {
					return err
				}
				continue
			}
			out.Write(text[*last:d.InputOffset()])
			var skipped json.RawMessage
			if err := d.Decode(&skipped); err != nil {
				return err
			}
			out.WriteString(": " + hidden)
			*last = d.InputOffset()
		}
	case json.Delim('['):
		for d.More() {
			if err := m.value(d, text, out, last); err != nil {
				return err
			}
		}
	default:
		return nil
	}
	_, err = d.Token() // the closing bracket
	return err
}
