package server

import (
	"io"
	"time"
)

// An upload has no place to work, because it mostly waits for the network. But writing it keeps the disk busy, which
// may also be the database's disk. So greedy identities rest after each piece.
const (
	pacePiece = 256 << 10
	// paceMost is the most of a piece's time that counts: a slow object store keeps no disk busy.
	paceMost = 100 * time.Millisecond
)

// paced reads an upload piece by piece. The time between two reads is the time that writing takes.
type paced struct {
	from  io.Reader
	call  *call
	left  int           // bytes until the next rest
	wrote time.Duration // since the last rest
	// When the last read ended whose bytes are being written; zero if none are.
	read time.Time
}

func (p *paced) Read(into []byte) (int, error) {
	p.written()
	if p.left == 0 {
		if err := p.rest(); err != nil {
			return 0, err
		}
		p.left = pacePiece
	}
	n, err := p.from.Read(into[:min(len(into), p.left)])
	p.left, p.read = p.left-n, time.Now()
	p.call.rooms.working.want(p.call.who.ID, 1)
	return n, err
}

// written records that the bytes of the last read have been written.
func (p *paced) written() {
	if !p.read.IsZero() {
		p.wrote += time.Since(p.read)
		p.read = time.Time{}
		p.call.rooms.working.want(p.call.who.ID, -1)
	}
}

// end rests from the last write.
func (p *paced) end() {
	p.written()
	_ = p.rest()
}

// rest waits for a place to work. A greedy identity rests as it would after heavy work that took as long as the last
// piece.
func (p *paced) rest() error {
	if p.wrote == 0 {
		return nil
	}
	rooms := p.call.rooms
	place, err := rooms.before(p.call.r.Context(), rooms.working, p.call.who.ID, 1)
	if err != nil {
		return err
	}
	wrote := min(p.wrote, paceMost)
	place.from = place.from.Add(-wrote)
	place.rest(heavyRests * wrote)
	p.wrote = 0
	return nil
}
