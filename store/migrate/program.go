package migrate

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"strings"
	"time"
)

// A program owns the functions or procedures that it calls in a database. They are installed under names that contain
// a hash of their text, so that programs of several versions can use the same tables. They are removed when no live
// worker belongs to the program and the program has not run for some time.
const (
	SeenEvery = time.Hour          // how often a program records that it runs
	DropAfter = 7 * 24 * time.Hour // how long after the last such record its functions are removed
)

// Texts returns the contents of the embedded files that match a pattern, in the order of their names.
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

// Mark returns the ending that identifies a program in the names of its functions, from their texts.
func Mark(texts ...string) string {
	hash := sha256.Sum256([]byte(strings.Join(texts, "")))
	return "_f" + hex.EncodeToString(hash[:6])
}
