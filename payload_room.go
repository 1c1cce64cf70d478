package tusk

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/internal/gate"
)

// Limits of the parts of one owner that have not been assembled, in number and in bytes: those of four uploads of
// the maximum size.
const (
	MaxUnfinishedParts = 4 * MaxParts

	MaxUnfinishedBytes int64 = 4 * MaxPayloadBytes
)

const (
	listedFor = time.Minute     // how long writes of other processes may go unnoticed
	fullFor   = 5 * time.Second // the same, when the limit is reached
	mostLying = 10000           // owners that are remembered; beyond that all are forgotten
)

// lying tracks the stored parts of each owner. They are listed occasionally, not for every part.
type lying struct {
	mu sync.Mutex
	of map[string]*lyingParts
}

// lyingParts are the parts of one owner.
type lyingParts struct {
	listing gate.Gate // held while they are listed
	listed  time.Time // guarded by listing

	mu    sync.Mutex
	parts int
	bytes int64
}

func (l *lying) owned(by string) *lyingParts {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil || len(l.of) >= mostLying {
		l.of = map[string]*lyingParts{}
	}
	p := l.of[by]
	if p == nil {
		p = &lyingParts{listing: gate.New()}
		l.of[by] = p
	}
	return p
}

// room rejects a part if its owner has too many parts that have not been assembled.
func (p *lyingParts) room(ctx context.Context, from Payloads, prefix string) error {
	if err := p.listing.Enter(ctx); err != nil {
		return fmt.Errorf("write a part: %w", err)
	}
	defer p.listing.Leave()
	parts, bytes, full := p.known()
	if age := time.Since(p.listed); age > listedFor || age > fullFor && full {
		there, size, err := from.Sum(ctx, prefix)
		if err != nil {
			return fmt.Errorf("write a part: %w", err)
		}
		p.add(there-parts, size-bytes) // those that were written meanwhile may count twice until the next time
		p.listed = time.Now()
		parts, bytes, full = p.known()
	}
	if !full {
		return nil
	}
	return invalid("upload", "too_large", "has no room: your parts that are not put together are %d with %d bytes, "+
		"at most %d with %d bytes are allowed: put them together, or wait: parts are kept for a day",
		parts, bytes, MaxUnfinishedParts, MaxUnfinishedBytes)
}

func (p *lyingParts) known() (parts int, bytes int64, full bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.parts, p.bytes, p.parts >= MaxUnfinishedParts || p.bytes >= MaxUnfinishedBytes
}

func (p *lyingParts) add(parts int, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parts, p.bytes = p.parts+parts, p.bytes+bytes
}
