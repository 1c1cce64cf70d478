package rules

import "github.com/tuskqueue/tusk/store"

// Standing is what an engine knows of a worker. Engines in SQL keep the number of one
// that is known.
type Standing int

const (
	Unheard   Standing = iota - 1 // it has never beaten
	Living                        // it has beaten, and neither left nor died since
	Dead                          // it was declared dead
	SignedOff                     // it has said that it leaves
)

// Beat says whether a beat changes anything, by how its worker stands and which was its last
// beat: one that signs off and is not known, or has signed off before, changes nothing. A
// worker that is dead stays so, and no beat counts that was overtaken by a later one.
func Beat(b *store.Beat, is Standing, last int64) (counts bool, err error) {
	leaves := b.TTL <= 0
	switch {
	case leaves && (is == Unheard || is == SignedOff):
		return false, nil
	case is == Dead || is == SignedOff:
		return false, store.ErrWorkerDead
	case is == Living && b.Seq > 0 && b.Seq <= last:
		return false, store.ErrLate
	}
	return true, nil
}
