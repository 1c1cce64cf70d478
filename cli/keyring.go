package cli

import (
	"encoding/base64"
	"strings"

	"github.com/tuskqueue/tusk"
)

// keyRing reads the keys of --key-ring, or returns nil if there are none. Its errors contain no key.
func keyRing(pairs []string) (*tusk.KeyRing, error) {
	if len(pairs) == 0 {
		return nil, nil
	}
	ring := &tusk.KeyRing{Keys: map[string][]byte{}}
	for i, pair := range pairs {
		name, text, _ := strings.Cut(strings.TrimSpace(pair), "=")
		key, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(key) != 32 || tusk.ValidateName("key", name) != nil {
			return nil, usage("make a key with: openssl rand -base64 32",
				"--key-ring: entry %d: want NAME=KEY, with a key of 32 bytes in base64", i+1)
		}
		if ring.Keys[name] != nil {
			return nil, usage("give each key a name of its own", "--key-ring: entry %d: the name comes twice", i+1)
		}
		if ring.Keys[name] = key; i == 0 {
			ring.Primary = name
		}
	}
	return ring, nil
}
