// Package mask hides values in the JSON of tasks from those who look at them:
// passwords and tokens, by the names of their fields.
//
// It is pure. The server and its pages put everything through it that they show of args
// and outputs, and searches in args see no more than that.
package mask

import (
	"bytes"
	"encoding/json"
	"maps"
	"strings"
)

// Default are the parts of field names whose values are hidden, in any case.
var Default = []string{"password", "passwd", "secret", "token", "authorization", "api_key", "apikey",
	"private_key", "cookie",
	"pwd", "passphrase", "credential"}

// Mask hides values. The zero value hides nothing.
type Mask struct {
	Names []string `json:"names,omitempty"` // parts of names, lower case
	All   bool     `json:"all,omitempty"`   // hide everything
}

const hidden = `"[hidden]"`

// JSON returns text with the values of masked fields replaced. Everything else
// stays byte for byte, numbers too long for others included. What is no JSON is
// hidden when anything is.
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
	var last int64 // up to where text is written
	if err := m.value(d, text, &out, &last); err != nil {
		return []byte(hidden)
	}
	out.Write(text[last:])
	return out.Bytes()
}

// Text returns named texts with the values of masked names replaced.
func (m Mask) Text(fields map[string]string) map[string]string {
	shown := maps.Clone(fields)
	for name := range shown {
		if m.All || m.hides(name) {
			shown[name] = "[hidden]"
		}
	}
	return shown
}

// mentioned is a cheap look at whether any name could occur. Escapes could spell
// anything.
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
