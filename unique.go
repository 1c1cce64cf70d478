package tusk

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Unique derives a task's key from its kind, its tenant, its args or some of them, and a time window.
type Unique struct {
	// Args names the fields that are part of the key; "customer.id" is a nested field. Default: all fields.
	Args []string
	// Window allows one task per time window, whatever its outcome. With a window of an hour, that is one from
	// each full hour to the next, by the client's clock and in UTC. It applies for as long as the task's history
	// is kept. Default: one unfinished task at any time.
	Window time.Duration
}

// uniquePrefix begins every key that Unique generates.
const uniquePrefix = "unique:"

const (
	maxUniqueArgs   = 16
	maxUniqueWindow = 366 * 24 * time.Hour
)

func (u *Unique) validate(o *Options) error {
	switch {
	case u == nil:
		return nil
	case o.Key != "":
		return invalid("unique", "key_given", "cannot go with the key %q: one of them is the task's identity", cutText(o.Key))
	case u.Window != 0 && o.OnConflict != Skip:
		return invalid("unique", "invalid_policy", "with a window skips what comes again: leave OnConflict out")
	case len(u.Args) > maxUniqueArgs:
		return invalid("unique", "too_many", "names %d args, at most %d are allowed", len(u.Args), maxUniqueArgs)
	}
	for _, name := range u.Args {
		if name == "" || len(name) > MaxKeyBytes {
			return invalid("unique", "invalid_name", "%q is no name of a field", cutText(name))
		}
	}
	if u.Window == 0 {
		return nil
	}
	return within("unique: window", u.Window, time.Second, maxUniqueWindow)
}

// key sets a task's key. With a window, the key ends with the window's start.
func (u *Unique) key(n *store.NewTask, now time.Time) error {
	chosen, err := u.choose(n.Args)
	if err != nil {
		return err
	}
	hash := sha256.New()
	for _, part := range [][]byte{[]byte(n.Kind), []byte(n.Tenant), chosen} {
		hash.Write(part)
		hash.Write([]byte{0})
	}
	n.Key = uniquePrefix + n.Kind + ":" + hex.EncodeToString(hash.Sum(nil)[:16])
	if u.Window != 0 {
		n.Key, n.OnConflict = n.Key+":"+now.UTC().Truncate(u.Window).Format("20060102T150405Z"), Once
	}
	return nil
}

// choose returns the args that are part of the key, in a form that does not depend on the order of fields.
func (u *Unique) choose(args []byte) ([]byte, error) {
	var all any
	d := json.NewDecoder(bytes.NewReader(args))
	d.UseNumber()
	if err := d.Decode(&all); err != nil {
		return nil, invalid("args", "invalid_json", "%v", err)
	}
	if len(u.Args) == 0 {
		return json.Marshal(all)
	}
	chosen := make([]any, len(u.Args))
	found := false
	for i, name := range u.Args {
		at := all
		for _, part := range strings.Split(name, ".") {
			fields, _ := at.(map[string]any)
			at = fields[part]
		}
		chosen[i] = at
		found = found || at != nil
	}
	if !found {
		return nil, invalid("unique", "unknown_field", "names fields that the args do not have: %q", u.Args)
	}
	return json.Marshal(chosen)
}
