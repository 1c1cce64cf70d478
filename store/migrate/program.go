package migrate

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"strings"
	"time"
)

// What a program calls by name in a database, functions or procedures, belongs to that program. It is installed
// under a name that its text gives it, so that programs of several versions work on the same tables side by side.
// It goes when no living worker belongs to the program and nobody has run it for a time.
const (
	SeenEvery = time.Hour          // how often a program says that it runs
	DropAfter = 7 * 24 * time.Hour // for how long no program has said so when what it calls is removed
)

// Texts returns the files of a pattern, which are embedded, in the order of their names.
func Texts(files fs.FS, pattern string) []string {
	names, err := fs.Glob(files, pattern)
	if err != nil {
		panic(err)
	}
	texts := make([]string, len(names))
	for i, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			panic(err)
		}
		texts[i] = string(text)
	}
	return texts
}

// Mark names a program by what it calls: it goes to the end of a name.
func Mark(texts ...string) string {
	hash := sha256.Sum256([]byte(strings.Join(texts, "")))
	return "_f" + hex.EncodeToString(hash[:6])
}
