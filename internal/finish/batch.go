package finish

import (
	"slices"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// batch is a set of outcomes to be written together.
type batch struct {
	outcomes []store.Outcome
	ended    []time.Time // when the attempt of each ended
	since    time.Time   // when the first outcome arrived
}

// batches holds written batches for reuse: outcomes are a large part of what a worker allocates.
var batches = sync.Pool{New: func() any { return new(batch) }}

func newBatch(size int, since time.Time) *batch {
	b := batches.Get().(*batch)
	b.outcomes, b.ended, b.since = slices.Grow(b.outcomes, size), slices.Grow(b.ended, size), since
	return b
}

func (b *batch) add(more *batch) {
	if len(b.outcomes) == 0 {
		*b = *more
		return
	}
	b.outcomes, b.ended = append(b.outcomes, more.outcomes...), append(b.ended, more.ended...)
	more.recycle()
}

// tokens appends the leases of a batch. Outcomes of one claim are adjacent.
func (b *batch) tokens(tokens []store.Token) []store.Token {
	for i := range b.outcomes {
		if lease := b.outcomes[i].Task.Lease; len(tokens) == 0 || tokens[len(tokens)-1] != lease {
			tokens = append(tokens, lease)
		}
	}
	return tokens
}

func (b batch) first(n int) batch {
	n = min(n, len(b.outcomes))
	return batch{outcomes: b.outcomes[:n:n], ended: b.ended[:n:n]}
}

func (b batch) after(part batch) batch {
	n := len(part.outcomes)
	return batch{outcomes: b.outcomes[n:], ended: b.ended[n:]}
}

// stamp records how long ago each attempt ended.
func (b batch) stamp(now time.Time) {
	for i := range b.outcomes {
		b.outcomes[i].Ago = now.Sub(b.ended[i])
	}
}

// recycle returns a written batch to the pool. Its outcomes must no longer be used.
func (b batch) recycle() {
	clear(b.outcomes)
	b.outcomes, b.ended = b.outcomes[:0], b.ended[:0]
	batches.Put(&b)
}
