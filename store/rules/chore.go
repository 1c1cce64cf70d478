package rules

import "github.com/tuskqueue/tusk/store"

// Admit makes scheduled and retryable tasks available, in the order given, if their run time has come, and returns
// them. A task that runs in turns waits for its turn instead.
func (b *Batch) Admit(ids []store.ID) (admitted []*Row, err error) {
	if err := b.read(Want{Tasks: ids}); err != nil {
		return nil, err
	}
	for _, id := range ids {
		r := b.tasks[id].After
		if r == nil || r.State != store.Scheduled && r.State != store.Retryable || r.RunAt.After(b.Now) {
			continue
		}
		if r.Turn && !r.HasTurn {
			b.put(r, store.Pending)
			continue
		}
		b.put(r, store.Available) // keeps its run time: it has waited since then
		admitted = append(admitted, r)
	}
	return admitted, nil
}

// Grant gives a turn to those of the tasks that wait only for their turn, in the order given, and returns how many
// it granted.
func (b *Batch) Grant(ids []store.ID) (granted int, err error) {
	if err := b.read(Want{Tasks: ids}); err != nil {
		return 0, err
	}
	for _, id := range ids {
		r := b.tasks[id].After
		if r == nil || !r.InLine() {
			continue
		}
		r.HasTurn, r.RunAt = true, b.Now
		b.put(r, store.Available)
		granted++
	}
	return granted, nil
}
