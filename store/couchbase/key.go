package couchbase

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// key is the document of a key. Each change of the key's holder, and each end of the holder's attempt, also writes the
// document. So of two calls that rely on it, only one succeeds.
type key struct {
	head
	Queue    string    `json:"q"`
	Tenant   string    `json:"tn"`
	Key      string    `json:"k"`
	Holder   string    `json:"h,omitempty"`
	Awaiting string    `json:"next,omitempty"`
	Ended    string    `json:"e,omitempty"`
	Source   time.Time `json:"src,omitzero"`
	Tasks    int64     `json:"n"`

	Remade int64 `json:"remade,omitempty"` // when it was rebuilt; see remake.go
}

// nameOf returns the name of a new task's key, or the zero name if it has no key.
func nameOf(n *store.NewTask) rules.KeyName {
	if n.Key == "" {
		return rules.KeyName{}
	}
	return rules.KeyName{Queue: n.Queue, Tenant: n.Tenant, Key: n.Key}
}

// keyRef names the document of a key.
func keyRef(n rules.KeyName) ref { return ref{inKey, named(n.Queue, n.Tenant, n.Key)} }

// named joins names to a document's key, or returns a hash if the key would be too long or ambiguous.
func named(names ...string) string {
	text := strings.Join(names, "|")
	if len(text) <= 200 && strings.Count(text, "|") == len(names)-1 && !strings.HasPrefix(text, "#") {
		return text
	}
	return hashed(names...)
}

func hashed(names ...string) string {
	h := sha256.New()
	for _, name := range names {
		fmt.Fprintf(h, "%d:%s", len(name), name)
	}
	return "#" + hex.EncodeToString(h.Sum(nil)[:16])
}

// known returns the key as the rules see it.
func (k *key) known(name rules.KeyName) *rules.Key {
	return &rules.Key{
		KeyName: name, Holder: idOf(k.Holder), Awaiting: idOf(k.Awaiting), Ended: idOf(k.Ended), Source: k.Source,
		Tasks: k.Tasks,
	}
}

// set gives the document the state of the key after the rules. A key without tasks is deleted.
func (k *key) set(r *rules.Key) {
	k.Queue, k.Tenant, k.Key, k.Tasks = r.Queue, r.Tenant, r.Key, r.Tasks
	k.Source = r.Source.UTC() // JSON would drop the seconds of a zone's offset
	k.Holder, k.Awaiting, k.Ended = textOf(r.Holder), textOf(r.Awaiting), textOf(r.Ended)
	k.Gone = k.Tasks <= 0 && k.Holder == "" && k.Awaiting == ""
}
