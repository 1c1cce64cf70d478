// Package payload is how a task refers to args, or an output, that are kept outside the database,
// and what the object looks like that has them. It is pure: it may touch neither tasks nor places.
package payload

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Prefix is what the names of all objects begin with, in their place.
const Prefix = "_tusk/payloads/"

// Ref stands in the database where args or an output would.
type Ref struct {
	Object string          `json:"object"`        // its name, below Prefix
	Skip   int64           `json:"skip"`          // bytes of its header
	Bytes  int64           `json:"bytes"`         // of the JSON
	SHA256 string          `json:"sha256"`        // of the JSON
	Key    json.RawMessage `json:"key,omitempty"` // what it is encrypted with, itself encrypted; none: it is not
	// Plain is the key in the clear: of a reference that is not stored yet.
	Plain []byte `json:"plain,omitempty"`
}

type wrapped struct {
	Payload *Ref `json:"$payload"`
}

const begin = `{"$payload"`

var (
	objects = regexp.MustCompile(`^\d{4}-\d\d-\d\d/([0-9a-f-]{36})\.[0-9a-f-]{36}$`)
	sums    = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// Reserved reports whether JSON begins as a reference does. Such JSON is taken from nobody.
func Reserved[T ~string | ~[]byte](text T) bool {
	return len(text) >= len(begin) && string(text[:len(begin)]) == begin
}

// Parse reads a reference; nil for JSON that is none.
func Parse(text []byte) *Ref {
	if !Reserved(text) {
		return nil
	}
	var w wrapped
	if err := json.Unmarshal(text, &w); err != nil || w.Payload == nil {
		return nil
	}
	r := w.Payload
	if !objects.MatchString(r.Object) || !sums.MatchString(r.SHA256) || r.Skip <= 0 || r.Bytes < 0 {
		return nil
	}
	return r
}

// Text is the reference as JSON.
func (r *Ref) Text() ([]byte, error) { return json.Marshal(wrapped{r}) }

// Name is that of a new object for a task.
func Name(task, own store.ID, now time.Time) string {
	return now.UTC().Format(time.DateOnly) + "/" + task.String() + "." + own.String()
}

// TaskOf reads the task in an object's name, which is the one that the object was made for. Another
// may have its args now: one that had the same key.
func TaskOf(object string) (store.ID, bool) {
	parts := objects.FindStringSubmatch(object)
	if parts == nil {
		return store.ID{}, false
	}
	id, err := store.ParseID(parts[1])
	return id, err == nil
}

// Header is the first line of an object: whose it is.
type Header struct {
	Version int      `json:"tusk_payload"`
	Task    store.ID `json:"task"`
	By      store.ID `json:"by,omitzero"` // the task whose attempt made it: it may not be stored before that ends
	Key     string   `json:"key,omitempty"`
}

// MostHeader is more than any header has.
const MostHeader = 4 << 10

// Line is the header with its line break.
func (h Header) Line() ([]byte, error) {
	h.Version = 1
	line, err := json.Marshal(h)
	return append(line, '\n'), err
}

// ReadHeader reads the header of an object.
func ReadHeader(r io.Reader) (h Header, err error) {
	line, err := bufio.NewReader(io.LimitReader(r, MostHeader)).ReadBytes('\n')
	if err != nil {
		return h, fmt.Errorf("the object has no header: %w", err)
	}
	if err := json.Unmarshal(line, &h); err != nil {
		return h, fmt.Errorf("the object has no header: %w", err)
	}
	if h.Version != 1 {
		return h, errors.New("a newer program wrote the object")
	}
	return h, nil
}
