package couchbase

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

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

// A dead worker whose intent was lost holds a task that only the index knows. It stays in the directory until the index
// was asked and the task was rescued. Then it is no longer read, but learns for a day that it is dead.
func TestADeadWorkerIsForgottenOnceItHoldsNothing(t *testing.T) {
	r := newRig(t, 1)
	r.add(r.task("x", nil))
	r.claim()
	d, err := r.b.read(r.ctx(), workerRef(r.worker.String()))
	r.must("read", err)
	w := d.worker()
	w.Leases, w.G = map[string][]string{}, nil
	_, err = r.b.write(r.ctx(), d)
	r.must("write", err)
	r.f.DropIndex("tusk", "tusk_run")
	if _, err := r.b.Rescue(r.ctx(), r.term, 100); err == nil {
		t.Fatal("the index has answered")
	}
	r.must("define", r.index("tusk_run"))
	for range 2 { // the task is not finished at first
		if dead, err := r.b.Rescue(r.ctx(), r.term, 100); err != nil || len(dead) != 1 {
			t.Fatalf("%d tasks are rescued: %v", len(dead), err)
		}
	}
	dead, err := r.b.Rescue(r.ctx(), r.term, 100)
	r.must("rescue", err)
	r.end(&dead[0], store.Available)
	for range 2 { // the directory is changed after the worker
		if dead, err = r.b.Rescue(r.ctx(), r.term, 100); err != nil || len(dead) > 0 {
			t.Fatalf("%d tasks are rescued: %v", len(dead), err)
		}
	}
	if names, err := r.b.listed(r.ctx(), r.b.meta, workerList); err != nil || len(names) > 0 {
		t.Errorf("%v are listed: %v", names, err)
	}
	beat := store.Beat{Worker: store.Worker{ID: r.worker}, TTL: time.Hour}
	if _, err := r.a.Extend(r.ctx(), beat); !errors.Is(err, store.ErrWorkerDead) {
		t.Errorf("it beats again: %v", err)
	}
	r.f.JumpClock(forgetAfter + time.Minute)
	if is, err := r.b.read(r.ctx(), workerRef(r.worker.String())); is != nil || err != nil {
		t.Errorf("the worker is still known: %v", err)
	}
}
