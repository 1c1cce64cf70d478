package rules

import "github.com/tuskqueue/tusk/store"

// Admit makes a scheduled or retryable task available whose run time has come, or has it
// wait for its turn.
func (b *Batch) Admit(id store.ID) (bool, error) {
	r, err := b.task(id)
	if err != nil || r == nil || r.State != store.Scheduled && r.State != store.Retryable || r.RunAt.After(b.Now) {
		return false, err
	}
	if r.Turn && !r.HasTurn {
		b.put(r, store.Pending)
		return false, nil
	}
	b.put(r, store.Available) // its run time stays: it has waited since then
	return true, nil
}

// Grant gives a task its turn if it waits for that alone, and reports whether it did.
func (b *Batch) Grant(id store.ID) (bool, error) {
	r, err := b.task(id)
	if err != nil || r == nil || !r.InLine() {
		return false, err
	}
	r.HasTurn, r.RunAt = true, b.Now
	b.put(r, store.Available)
	return true, nil
}
