package rules

import (
	"encoding/binary"
	"errors"

	"github.com/tuskqueue/tusk/store"
)

// Ending identifies one end of a task. A task that was brought back and has ended again has another Ending.
type Ending struct {
	ID store.ID
	At int64 // microseconds since 1970
}

// endingSize is the size of an Ending in a receipt, in bytes.
const endingSize = 24

// EndingOf returns the end of a finished task.
func EndingOf(t *store.Task) Ending { return Ending{t.ID, t.FinishedAt.UnixMicro()} }

// Receipt returns the receipt for a store.Due, for an engine that finds each task by its id. It is nil if there are
// no tasks.
func Receipt(tasks []store.Task) (receipt []byte) {
	for i := range tasks {
		e := EndingOf(&tasks[i])
		receipt = binary.BigEndian.AppendUint64(append(receipt, e.ID[:]...), uint64(e.At))
	}
	return receipt
}

// ReadReceipt returns the ends that a receipt contains.
func ReadReceipt(receipt []byte) ([]Ending, error) {
	if len(receipt)%endingSize != 0 {
		return nil, errors.New("the receipt is damaged")
	}
	ends := make([]Ending, len(receipt)/endingSize)
	for i := range ends {
		entry := receipt[i*endingSize:]
		ends[i] = Ending{store.ID(entry[:16]), int64(binary.BigEndian.Uint64(entry[16:]))}
	}
	return ends, nil
}

// Release deletes the tasks that still have the given end, and returns those that exist but have another one.
func (b *Batch) Release(ends []Ending) (back []store.ID, err error) {
	ids := make([]store.ID, len(ends))
	for i, e := range ends {
		ids[i] = e.ID
	}
	if err := b.read(Want{Tasks: ids}); err != nil {
		return nil, err
	}
	var gone []store.ID
	for _, e := range ends {
		switch r := b.tasks[e.ID].After; {
		case r == nil:
		case r.State.Finished() && EndingOf(&r.Task) == e:
			gone = append(gone, e.ID)
		default:
			back = append(back, e.ID)
		}
	}
	return back, b.Delete(gone)
}
