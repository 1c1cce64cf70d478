package rules

import (
	"fmt"

	"github.com/tuskqueue/tusk/store"
)

// Restore adds finished tasks from an archive, as they were, and returns the ids of those that exist already. Their
// end is set to now, which restarts their retention. A key counts them like other ended tasks; its holder does not
// change.
func (b *Batch) Restore(tasks []store.Task) (exist []store.ID, err error) {
	var w Want
	for i := range tasks {
		t := &tasks[i]
		if !t.State.Finished() {
			return nil, fmt.Errorf("task %v is %v: only finished tasks can be restored", t.ID, t.State)
		}
		w.Tasks = append(w.Tasks, t.ID)
		w.Keys = append(w.Keys, KeyName{t.Queue, t.Tenant, t.Key})
	}
	if err := b.read(w); err != nil {
		return nil, err
	}
	for i := range tasks {
		if b.tasks[tasks[i].ID].After != nil {
			exist = append(exist, tasks[i].ID)
			continue
		}
		if err := b.restore(&tasks[i]); err != nil {
			return nil, err
		}
	}
	return exist, nil
}

func (b *Batch) restore(t *store.Task) error {
	r := &Row{Task: *t, Restored: true, Values: true, Needed: true} // tasks that need it may still wait
	r.FinishedAt, r.Lease, r.Worker, r.Damage = b.Now, store.Token{}, store.ID{}, ""
	if r.Detail == nil {
		r.Detail = &store.Detail{}
	}
	r.Changed = r.Detail.Changed
	b.add(r)
	if needs := r.Detail.Needs; len(needs) > 0 {
		r.Needs = true
		own := &NewNeeds{Child: r.ID}
		for _, n := range needs {
			own.Needs = append(own.Needs, OpenNeed{Need: n.Need})
		}
		b.anew[r.ID] = own
		b.Needs = append(b.Needs, own)
	}
	b.put(r, r.State)
	k, err := b.key(r.key())
	if err != nil || k == nil {
		return err
	}
	if k.Tasks++; k.Ended.IsZero() {
		k.Ended = r.ID
	}
	return nil
}

// Fingerprint returns the fingerprint of a restored task's latest failed attempt, or "" if none failed.
func (r *Row) Fingerprint() (print string) {
	for _, a := range r.Detail.Attempts {
		if a.Error != "" {
			print = a.Fingerprint
		}
	}
	return print
}
