package store

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
)

// ID names a task or a worker: a UUID, version 7, minted by the caller and not
// by the engine. Its text form is the usual 36 characters; ids that were minted
// later sort later, to the millisecond.
type ID [16]byte

// ErrBadID reports text that is not a UUID.
var ErrBadID = errors.New("not a UUID: want 36 characters like 0193e4a0-6c1f-7d3a-9c59-1f0a2b3c4d5e")

// ParseID reads the text form of an id. The error is ErrBadID.
func ParseID(text string) (ID, error) {
	var id ID
	if len(text) != 36 || text[8] != '-' || text[13] != '-' || text[18] != '-' || text[23] != '-' {
		return id, ErrBadID
	}
	digits := text[:8] + text[9:13] + text[14:18] + text[19:23] + text[24:]
	if _, err := hex.Decode(id[:], []byte(digits)); err != nil {
		return ID{}, ErrBadID
	}
	return id, nil
}

// IsZero reports whether the id was never set.
func (id ID) IsZero() bool { return id == ID{} }

// String returns the text form.
func (id ID) String() string {
	text := make([]byte, 36)
	hex.Encode(text[0:8], id[0:4])
	hex.Encode(text[9:13], id[4:6])
	hex.Encode(text[14:18], id[6:8])
	hex.Encode(text[19:23], id[8:10])
	hex.Encode(text[24:36], id[10:16])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return string(text)
}

// MarshalText implements encoding.TextMarshaler.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *ID) UnmarshalText(text []byte) (err error) {
	*id, err = ParseID(string(text))
	return err
}

// Token is the fence of a lease: 128 random bits that name one claim and are never used again. It carries no
// information, not even an order.
type Token [16]byte

// NewToken creates a token from the system's random source.
func NewToken() Token {
	var token Token
	rand.Read(token[:]) // never fails, as its documentation promises
	return token
}

// IsZero reports whether the token was never set.
func (t Token) IsZero() bool { return t == Token{} }

// String returns the token as 32 hexadecimal digits.
func (t Token) String() string { return hex.EncodeToString(t[:]) }
