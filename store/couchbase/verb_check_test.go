package couchbase

import "github.com/tuskqueue/tusk/store"

// all fails unless those of the tasks that exist are completed, and all exist if they must.
func (r *rig) all(must bool, names ...string) {
	r.Helper()
	for _, name := range names {
		t := r.get(r.ids[name])
		switch {
		case t == nil && must:
			r.Errorf("%s is lost", name)
		case t != nil && t.State != store.Completed && (must || t.State != store.Cancelled):
			r.Errorf("%s is %v", name, t.State)
		}
	}
}

// once fails unless a task that a held has completed once, and by a if a got an answer.
func (r *rig) once(name string, answered bool) {
	r.Helper()
	t := r.get(r.ids[name])
	byA := string(t.Detail.Output) == `"a"`
	if t.State != store.Completed || answered && !byA || byA == (r.ran[t.ID] > 0) {
		r.Errorf("%s is %v, by a %v, by b %d times", name, t.State, byA, r.ran[t.ID])
	}
}

// together fails unless the tasks that came with an outcome exist if and only if the outcome was accepted.
func (r *rig) together(name string, then ...string) {
	r.Helper()
	accepted := string(r.get(r.ids[name]).Detail.Output) == `"a"`
	for _, other := range then {
		if there := r.get(r.ids[other]) != nil; there != accepted {
			r.Errorf("the outcome was accepted: %v, and %s is there: %v", accepted, other, there)
		}
	}
}

func (r *rig) find(name string) *store.Record {
	r.Helper()
	records, err := r.b.Records(r.ctx(), store.RecordFilter{Kind: "kind"})
	r.must("records", err)
	for i := range records {
		if records[i].Name == name {
			return &records[i]
		}
	}
	return nil
}

func (r *rig) body(name string) string {
	if found := r.find(name); found != nil {
		return string(found.Body)
	}
	return ""
}
