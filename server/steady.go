package server

import (
	"bytes"
	"io"
	"net/http"
	"time"

	"github.com/tuskqueue/tusk/server/access"
)

// Large bodies and responses hold memory until their last byte has arrived or gone. So each part of them has a
// deadline.
const (
	part     = 64 << 10
	partTime = 5 * time.Second
	// betweenParts is how long a response may have nothing to send: over HTTP/2, a deadline that passes ends it even if
	// nobody writes.
	betweenParts = 45 * time.Second
)

// receive reads a body. A large body first waits for its memory. If the size is not known, it waits once the body
// turns out to be large.
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
	if _, err := body.ReadFrom(steadily(c.w, from)); err != nil {
		return nil, err
	}
	return body.Bytes(), nil
}

// steady reads a large body, with a deadline for each part.
type steady struct {
	from    io.Reader
	control *http.ResponseController
	last    time.Time     // deadline of the whole; zero if none
	left    int           // bytes of the part that have not been read
	rest    time.Duration // that reading them may take
}

func steadily(w http.ResponseWriter, from io.Reader) *steady {
	return &steady{from: from, control: http.NewResponseController(w), last: time.Now().Add(readTime)}
}

func (s *steady) Read(into []byte) (int, error) {
	if s.left == 0 {
		s.left, s.rest = part, partTime
	}
	begun := time.Now()
	next := begun.Add(s.rest)
	if !s.last.IsZero() && next.After(s.last) {
		next = s.last
	}
	_ = s.control.SetReadDeadline(next)
	n, err := s.from.Read(into[:min(len(into), s.left)])
	if err == nil || err == io.EOF {
		_ = s.control.SetReadDeadline(time.Time{}) // it would end the request while nobody reads
	}
	s.left, s.rest = s.left-n, s.rest-time.Since(begun)
	return n, err
}

// receiveForm waits for the memory of a large form before it is read, and makes it be read like other large bodies.
func (s *Server) receiveForm(
	w http.ResponseWriter, r *http.Request, who access.Identity, most int64,
) (giveBack func(), err error) {
	size := r.ContentLength
	if size < 0 || size > most {
		size = most
	}
	if size <= largeBody {
		return nil, nil
	}
	place, err := s.rooms.before(r.Context(), s.rooms.memory, who.ID, bodyCost*int(size))
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(steadily(w, r.Body))
	return place.leave, nil
}

// send writes a response.
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
	_ = control.SetWriteDeadline(time.Now().Add(betweenParts))
	return nil
}
