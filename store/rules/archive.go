package rules

import (
	"encoding/binary"
	"errors"

	"github.com/tuskqueue/tusk/store"
)

// Ending names one end of a task. A task that was brought back and has ended again has
// another one.
type Ending struct {
	ID store.ID
	At int64 // microseconds since 1970
}

// endingSize is how many bytes an Ending takes in a receipt.
const endingSize = 24

// EndingOf returns the end of a finished task.
func EndingOf(t *store.Task) Ending { return Ending{t.ID, t.FinishedAt.UnixMicro()} }

// Receipt is store.Due's, for an engine that finds each task by its id; nil for no tasks.
func Receipt(tasks []store.Task) (receipt []byte) {
	for i := range tasks {
		e := EndingOf(&tasks[i])
		receipt = binary.BigEndian.AppendUint64(append(receipt, e.ID[:]...), uint64(e.At))
	}
	return receipt
}

// ReadReceipt returns the ends that a receipt names.
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

// Release deletes those of the tasks that still have the end given, and returns those that
// exist and do not.
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
