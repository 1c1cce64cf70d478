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

// ErrEncrypted says that a task's args cannot be decrypted: the key is missing, or the stored args were changed
// or belong to another task.
var ErrEncrypted = errors.New("args are encrypted and cannot be read")

// KeyRing encrypts the args of tasks at rest with AES-256-GCM. The stored args are bound to the task, by its kind
// and its id or key, so that they cannot be moved to another task. Queue, key, tags, metadata, logs and outputs
// are not encrypted. Handlers, and the workers that a Puller lends to, receive decrypted args; Client.Get and
// Client.List return args as they are stored.
//
// To rotate keys, add a key everywhere, then make it Primary everywhere, and remove the old key when no task uses
// it any more. When a server starts, it re-encrypts the secrets of endpoints, alerts and hooks with its primary
// key.
type KeyRing struct {
	// Keys are the keys by name: 32 random bytes each.
	Keys map[string][]byte
	// Primary names the key that new tasks are encrypted with.
	Primary string
}

// envelope is the stored form of encrypted args: JSON, like all args.
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
		return invalid("KeyRing.Primary", "missing", "%q is not among the keys %q", cutText(k.Primary),
			slices.Sorted(maps.Keys(k.Keys)))
	}
	for name, key := range k.Keys {
		if len(key) != 32 {
			return invalid("KeyRing.Keys", "out_of_range", "key %q has %d bytes, want 32", cutText(name), len(key))
		}
	}
	return nil
}

// seal encrypts a task's args.
func (k *KeyRing) seal(t *store.NewTask) (err error) {
	if k != nil {
		t.Args, err = k.encrypt(t.Args, boundTo(t.Kind, t.Key, t.ID))
	}
	return err
}

// unseal returns decrypted args. Args that are not encrypted are returned unchanged.
func (k *KeyRing) unseal(args []byte, kind, key string, id ID) ([]byte, error) {
	e := envelopeOf(args)
	if e == nil {
		return args, nil
	}
	return k.decrypt(e, boundTo(kind, key, id))
}

// Encrypt encrypts a secret that is stored beside tasks, such as that of an endpoint, with the primary key. Only
// Decrypt with the same purpose can decrypt it.
func (k *KeyRing) Encrypt(secret []byte, purpose string) ([]byte, error) {
	return k.encrypt(secret, []byte("secret\x00"+purpose))
}

// Decrypt decrypts the result of Encrypt with any key of the ring. The error is ErrEncrypted.
func (k *KeyRing) Decrypt(stored []byte, purpose string) ([]byte, error) {
	e := envelopeOf(stored)
	if e == nil {
		return nil, fmt.Errorf("%w: it is no encrypted value", ErrEncrypted)
	}
	return k.decrypt(e, []byte("secret\x00"+purpose))
}

// IsCurrent reports whether stored was encrypted with the primary key. If so, it need not be encrypted again
// before other keys are removed.
func (k *KeyRing) IsCurrent(stored []byte) bool {
	e := envelopeOf(stored)
	return e != nil && k != nil && e.Key == k.Primary
}

// encrypt encrypts text and authenticates what it is bound to.
func (k *KeyRing) encrypt(text, bound []byte) ([]byte, error) {
	block, err := k.open(k.Primary)
	if err != nil {
		return nil, err
	}
	s := sealed{Key: k.Primary, Nonce: make([]byte, block.NonceSize())}
	rand.Read(s.Nonce)
	s.Data = block.Seal(nil, s.Nonce, text, bound)
	return json.Marshal(envelope{&s})
}

// envelopeOf decodes an envelope. It returns nil if text is not an envelope.
func envelopeOf(text []byte) *sealed {
	const begin = `{"$encrypted`
	if len(text) < len(begin) || string(text[:len(begin)]) != begin {
		return nil
	}
	var e envelope
	if err := json.Unmarshal(text, &e); err != nil {
		return nil
	}
	return e.Encrypted
}

func (k *KeyRing) decrypt(s *sealed, bound []byte) ([]byte, error) {
	if k == nil {
		return nil, fmt.Errorf("%w: the client has no KeyRing", ErrEncrypted)
	}
	block, err := k.open(s.Key)
	if err != nil {
		return nil, err
	}
	if len(s.Nonce) != block.NonceSize() {
		return nil, fmt.Errorf("%w: the nonce has %d bytes", ErrEncrypted, len(s.Nonce))
	}
	text, err := block.Open(nil, s.Nonce, s.Data, bound)
	if err != nil {
		return nil, fmt.Errorf("%w: they were changed, or belong to another task", ErrEncrypted)
	}
	return text, nil
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

// boundTo returns what is authenticated with the args: the task's id, or its key if it has one, since a replaced
// or rerun task takes over args that were enqueued under another id.
func boundTo(kind, key string, id ID) []byte {
	if key != "" {
		return []byte(kind + "\x00key\x00" + key)
	}
	return append([]byte(kind+"\x00id\x00"), id[:]...)
}
