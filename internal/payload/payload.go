// Package payload defines how a task refers to args or an output that are kept outside the
// database, and the format of the objects that hold them. It is pure: it accesses neither tasks nor
// object stores.
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

// Prefix begins the names of all objects in an object store.
const Prefix = "_tusk/payloads/"

// Ref is stored in the database in place of args or an output.
type Ref struct {
	Object string          `json:"object"`        // name, below Prefix
	Skip   int64           `json:"skip"`          // size of the header in bytes
	Bytes  int64           `json:"bytes"`         // size of the JSON in bytes
	SHA256 string          `json:"sha256"`        // of the JSON
	Key    json.RawMessage `json:"key,omitempty"` // the encryption key, itself encrypted; empty if none
	// Plain is the unencrypted key, as long as the reference is not stored.
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

// Reserved reports whether JSON begins like a reference. Such JSON is refused from all callers.
func Reserved[T ~string | ~[]byte](text T) bool {
	return len(text) >= len(begin) && string(text[:len(begin)]) == begin
}

// Parse reads a reference. It returns nil if the JSON is not a reference.
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

// Text returns the reference as JSON.
func (r *Ref) Text() ([]byte, error) { return json.Marshal(wrapped{r}) }

// Name returns the name of a new object for a task.
func Name(task, own store.ID, now time.Time) string {
	return now.UTC().Format(time.DateOnly) + "/" + task.String() + "." + own.String()
}

// TaskOf returns the task in an object's name. The object was written for that task, but another
// task with the same key may hold its args now.
func TaskOf(object string) (store.ID, bool) {
	parts := objects.FindStringSubmatch(object)
	if parts == nil {
		return store.ID{}, false
	}
	id, err := store.ParseID(parts[1])
	return id, err == nil
}

// Header is the first line of an object. It says which task the object belongs to.
type Header struct {
	Version int      `json:"tusk_payload"`
	Task    store.ID `json:"task"`
	// By is the task whose attempt wrote the object. Until that attempt ends, the database may lack
	// Task or its reference to the object.
	By  store.ID `json:"by,omitzero"`
	Key string   `json:"key,omitempty"`
}

// MostHeader is an upper bound for the size of a header, in bytes.
const MostHeader = 4 << 10

// Line returns the header with a line break.
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
