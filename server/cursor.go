package server

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/query"
)

// A cursor is the last id of a page and a checksum of the query, so that it fits no other query. It grants no access:
// permissions are checked again.

const cursorSum = 8

func newCursor(q query.Tasks, last tusk.ID) string {
	return base64.RawURLEncoding.EncodeToString(append(last[:], sumOf(q)...))
}

func readCursor(q query.Tasks, text string) (last tusk.ID, err error) {
	if text == "" {
		return last, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(raw) != len(last)+cursorSum || string(raw[len(last):]) != string(sumOf(q)) {
		return last, fieldProblem(http.StatusUnprocessableEntity, "invalid_cursor", "cursor",
			"is none of this query: leave it out to begin anew")
	}
	return tusk.ID(raw[:len(last)]), nil
}

func sumOf(q query.Tasks) []byte {
	sum := sha256.Sum256([]byte(q.Values().Encode()))
	return sum[:cursorSum]
}
