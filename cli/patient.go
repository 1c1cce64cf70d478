package cli

import (
	"context"
	"io"
)

// patient is a reader that stops waiting for input when the context ends, because an interrupt must end a command
// that reads from a terminal.
type patient struct {
	ctx  context.Context
	in   io.Reader
	rest []byte
	next chan chunk // a read in progress; nil if there is none
}

type chunk struct {
	data []byte
	err  error
}

// Read implements io.Reader.
func (p *patient) Read(into []byte) (int, error) {
	if len(p.rest) == 0 {
		if p.next == nil {
			p.next = make(chan chunk, 1)
			go func(size int, next chan chunk) {
				data := make([]byte, size)
				n, err := p.in.Read(data)
				next <- chunk{data[:n], err}
			}(max(len(into), 4<<10), p.next)
		}
		select {
		case <-p.ctx.Done():
			return 0, p.ctx.Err()
		case c := <-p.next:
			p.next = nil
			if p.rest = c.data; len(c.data) == 0 {
				return 0, c.err
			}
		}
	}
	n := copy(into, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}
