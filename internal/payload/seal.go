package payload

import (
	"bufio"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
)

// Objects are encrypted piece by piece, so that they are never in memory as a whole and can be read
// from any offset. Each object has its own key, so the number of a piece can be its nonce. The
// nonce also says whether a piece is the last one, so that an object cannot be truncated unnoticed.

const (
	// Piece is the number of bytes that are encrypted together.
	Piece   = 64 << 10
	tagSize = 16
)

// ErrDamaged says that an object is not as it was written.
var ErrDamaged = errors.New("the object is damaged")

// NewKey returns a random key for an object.
func NewKey() []byte {
	key := make([]byte, 32)
	rand.Read(key)
	return key
}

// pieces reads pieces, converts each one and passes on the result.
type pieces struct {
	from   *bufio.Reader
	size   int // of a whole piece as it is read
	change func(dst, nonce, piece []byte) ([]byte, error)
	number uint64
	buffer []byte // for a piece as it is read
	ready  []byte // converted, but not passed on yet
	room   []byte
	last   bool
}

// Encrypt returns a reader of r's content in encrypted form.
func Encrypt(r io.Reader, key []byte) (io.Reader, error) {
	aead, err := open(key)
	if err != nil {
		return nil, err
	}
	return newPieces(r, Piece, 0, func(dst, nonce, piece []byte) ([]byte, error) {
		return aead.Seal(dst, nonce, piece, nil), nil
	}), nil
}

// Decrypt returns a reader of r's decrypted content. r must begin with the piece that has the given
// number.
func Decrypt(r io.Reader, key []byte, number uint64) (io.Reader, error) {
	aead, err := open(key)
	if err != nil {
		return nil, err
	}
	return newPieces(r, Piece+tagSize, number, func(dst, nonce, piece []byte) ([]byte, error) {
		text, err := aead.Open(dst, nonce, piece, nil)
		if err != nil {
			return nil, ErrDamaged
		}
		return text, nil
	}), nil
}

// Offset returns where a piece begins in the output of Encrypt.
func Offset(number uint64) int64 { return int64(number) * (Piece + tagSize) }

func open(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

func newPieces(r io.Reader, size int, number uint64, change func(dst, nonce, piece []byte) ([]byte, error)) *pieces {
	return &pieces{from: bufio.NewReaderSize(r, 2*size), size: size, change: change, number: number,
		buffer: make([]byte, size)}
}

// Read implements io.Reader.
func (p *pieces) Read(into []byte) (int, error) {
	for len(p.ready) == 0 {
		if p.last {
			return 0, io.EOF
		}
		if err := p.next(); err != nil {
			return 0, err
		}
	}
	n := copy(into, p.ready)
	p.ready = p.ready[n:]
	return n, nil
}

func (p *pieces) next() error {
	n, err := io.ReadFull(p.from, p.buffer)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return err
	}
	if _, err := p.from.Peek(1); err == io.EOF {
		p.last = true
	} else if err != nil {
		return err
	}
	nonce := make([]byte, 12)
	binary.BigEndian.PutUint64(nonce, p.number)
	if p.last {
		nonce[11] = 1
	}
	p.number++
	p.room, err = p.change(p.room[:0], nonce, p.buffer[:n])
	p.ready = p.room
	return err
}
