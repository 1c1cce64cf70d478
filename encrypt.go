package tusk

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/tuskqueue/tusk/store"
)

// ErrEncrypted says that a task's args are encrypted and cannot be read: the key
// is missing, or what is stored was changed or belongs to another task.
var ErrEncrypted = errors.New("args are encrypted and cannot be read")

// KeyRing encrypts the args of tasks at rest with AES-256-GCM. The stored args are
// bound to the task, by its kind and its id or key, so that they cannot be moved to
// another. Queue, key, tags, metadata, logs and outputs are not encrypted. Handlers, and
// those that a Puller lends to, get args in the clear; Client.Get and Client.List give
// them as they are stored.
//
// Rotate by adding a key, making it Primary, and removing the old one when no
// task with it is left.
type KeyRing struct {
	// Keys are the keys by their names: 32 random bytes each.
	Keys map[string][]byte
	// Primary names the key that new tasks are encrypted with.
	Primary string
}

// envelope is how encrypted args are stored: as JSON, like all args.
type envelope struct {
	Encrypted *sealed `json:"$encrypted"`
}

type sealed struct {
	Key   string `json:"key"`
	Nonce []byte `json:"nonce"`
	Data  []byte `json:"data"`
}

func (k *KeyRing) validate() error {
	if k == nil {
		return nil
	}
	if _, ok := k.Keys[k.Primary]; !ok {
		return invalid("KeyRing.Primary", "missing", "%q is not among the keys %q", cutText(k.Primary), slices.Sorted(maps.Keys(k.Keys)))
	}
	for name, key := range k.Keys {
		if len(key) != 32 {
			return invalid("KeyRing.Keys", "out_of_range", "key %q has %d bytes, want 32", cutText(name), len(key))
		}
	}
	return nil
}

// seal encrypts a task's args.
func (k *KeyRing) seal(t *store.NewTask) error {
	if k == nil {
		return nil
	}
	block, err := k.open(k.Primary)
	if err != nil {
		return err
	}
	s := sealed{Key: k.Primary, Nonce: make([]byte, block.NonceSize())}
	rand.Read(s.Nonce)
	s.Data = block.Seal(nil, s.Nonce, t.Args, boundTo(t.Kind, t.Key, t.ID))
	t.Args, err = json.Marshal(envelope{&s})
	return err
}

// unseal returns args in the clear; those that were not encrypted, as they are.
func (k *KeyRing) unseal(args []byte, kind, key string, id ID) ([]byte, error) {
	if len(args) < len(`{"$encrypted`) || string(args[:len(`{"$encrypted`)]) != `{"$encrypted` {
		return args, nil
	}
	var e envelope
	if err := json.Unmarshal(args, &e); err != nil || e.Encrypted == nil {
		return args, nil
	}
	if k == nil {
		return nil, fmt.Errorf("%w: this worker's client has no KeyRing", ErrEncrypted)
	}
	block, err := k.open(e.Encrypted.Key)
	if err != nil {
		return nil, err
	}
	if len(e.Encrypted.Nonce) != block.NonceSize() {
		return nil, fmt.Errorf("%w: the nonce has %d bytes", ErrEncrypted, len(e.Encrypted.Nonce))
	}
	clear, err := block.Open(nil, e.Encrypted.Nonce, e.Encrypted.Data, boundTo(kind, key, id))
	if err != nil {
		return nil, fmt.Errorf("%w: they were changed, or belong to another task", ErrEncrypted)
	}
	return clear, nil
}

func (k *KeyRing) open(name string) (cipher.AEAD, error) {
	key, ok := k.Keys[name]
	if !ok {
		return nil, fmt.Errorf("%w: the key ring has no key %q", ErrEncrypted, cutText(name))
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("key %q: %w", cutText(name), err)
	}
	return cipher.NewGCM(block)
}

// boundTo is what is authenticated beside the args: the task's id, or its key if
// it has one, since a replaced or rerun task takes args that another id brought.
func boundTo(kind, key string, id ID) []byte {
	if key != "" {
		return []byte(kind + "\x00key\x00" + key)
	}
	return append([]byte(kind+"\x00id\x00"), id[:]...)
}
