package server

import (
	"bytes"
	"io"
	"net/http"
	"time"
)

// Large bodies and answers hold memory until their last byte has come or gone. So each part of
// them has a deadline.
const (
	part     = 64 << 10
	partTime = 5 * time.Second
)

// receive reads a body. A large one waits for its memory first; one that does not say how large
// it is, once it turns out to be large.
func (c *call) receive(from io.Reader) ([]byte, error) {
	size := c.r.ContentLength
	var body bytes.Buffer
	if size < 0 {
		if n, err := io.CopyN(&body, from, largeBody); err == io.EOF {
			return body.Bytes(), nil
		} else if err != nil || n < largeBody {
			return nil, err
		}
		size = c.config.MaxBody
	}
	if c.heavy = c.heavy || size > largeBody; size > largeBody {
		if err := c.take(bodyCost * int(size)); err != nil {
			return nil, err
		}
	}
	if c.r.ContentLength > 0 {
		body.Grow(int(size) + bytes.MinRead)
	}
	if size <= largeBody {
		_, err := body.ReadFrom(from)
		return body.Bytes(), err
	}
	control := http.NewResponseController(c.w)
	last := time.Now().Add(readTime)
	for {
		next := time.Now().Add(partTime)
		if next.After(last) {
			next = last
		}
		_ = control.SetReadDeadline(next)
		switch _, err := io.CopyN(&body, from, part); err {
		case nil:
		case io.EOF:
			_ = control.SetReadDeadline(time.Time{}) // which would end the request
			return body.Bytes(), nil
		default:
			return nil, err
		}
	}
}

// send writes an answer.
func (c *call) send(body []byte) error {
	control := http.NewResponseController(c.w)
	for len(body) > 0 {
		n := min(len(body), part)
		_ = control.SetWriteDeadline(time.Now().Add(partTime))
		if _, err := c.w.Write(body[:n]); err != nil {
			return err
		}
		body = body[n:]
	}
	return nil
}
