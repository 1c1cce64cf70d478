package couchbase

import (
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// prune makes b forget workers.
func (r *rig) prune() {
	r.Helper()
	_, err := r.b.Prune(r.ctx(), r.term, store.Retention{}, 100)
	r.must("prune", err)
}

// index creates an index again.
func (r *rig) index(name string) error {
	all, err := r.b.Migrations(r.ctx())
	for _, m := range all {
		for statement := range strings.SplitSeq(m.SQL, ";\n") {
			if strings.Contains(statement, "`"+name+"`") {
				return r.b.define(r.ctx(), statement)
			}
		}
	}
	return err
}

// A dead worker whose intent was lost holds a task that only the index knows. It is not forgotten before the index was
// asked and the task was rescued.
func TestADeadWorkerIsForgottenOnceItHoldsNothing(t *testing.T) {
	r := newRig(t, 1)
	r.add(r.task("x", nil))
	r.claim()
	d, err := r.b.read(r.ctx(), workerRef(r.worker.String()))
	r.must("read", err)
	w := d.worker()
	w.Beat -= (forgetAfter + time.Hour).Microseconds()
	w.Leases, w.G, w.Expires = map[string][]string{}, nil, w.Beat
	_, err = r.b.write(r.ctx(), d)
	r.must("write", err)
	r.f.DropIndex("tusk", "tusk_run")
	if _, err := r.b.Rescue(r.ctx(), r.term, 100); err == nil {
		t.Fatal("the index has answered")
	}
	r.prune()
	r.must("define", r.index("tusk_run"))
	for range 2 { // the task is not finished at first
		if dead, err := r.b.Rescue(r.ctx(), r.term, 100); err != nil || len(dead) != 1 {
			t.Fatalf("%d tasks are rescued: %v", len(dead), err)
		}
		r.prune()
	}
	dead, err := r.b.Rescue(r.ctx(), r.term, 100)
	r.must("rescue", err)
	r.end(&dead[0], store.Available)
	if dead, err = r.b.Rescue(r.ctx(), r.term, 100); err != nil || len(dead) > 0 {
		t.Fatalf("%d tasks are rescued: %v", len(dead), err)
	}
	r.prune()
	if is, err := r.b.read(r.ctx(), workerRef(r.worker.String())); is != nil || err != nil {
		t.Errorf("the worker is still known: %v", err)
	}
}
