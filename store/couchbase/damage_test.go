package couchbase

import (
	"testing"
	"time"

	"github.com/couchbase/gocb/v2"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// damage stores a text in place of a document.
func (r *rig) damage(in *gocb.Collection, key, text string) {
	r.Helper()
	_, err := in.Upsert(key, []byte(text), &gocb.UpsertOptions{Context: r.ctx(), Transcoder: verbatim})
	r.must("damage "+key, err)
}

// spoilField stores a value in place of a field of a document.
func (r *rig) spoilField(in *gocb.Collection, key, path string, value any) {
	r.Helper()
	_, err := in.MutateIn(key, []gocb.MutateInSpec{gocb.UpsertSpec(path, value, nil)},
		&gocb.MutateInOptions{Context: r.ctx()})
	r.must("damage "+key, err)
}

func (r *rig) key(name string) string { return r.ids[name].String() }

func TestADamagedTaskHoldsUpNoneBehindIt(t *testing.T) {
	r := newRig(t, 1)
	r.add(r.task("lost", nil), r.task("tags", keyed("k", store.Skip)), r.task("base64", nil), r.task("sound", nil))
	r.damage(r.b.tasks, r.key("lost"), "no JSON")
	r.spoilField(r.b.tasks, r.key("tags"), "tags", 5)
	r.spoilField(r.b.tasks, r.key("base64"), "set", "?")
	r.claim()
	if len(r.held) != 3 || r.held["tags"].Damage == "" || r.held["base64"].Damage == "" || r.held["sound"].Damage != "" {
		t.Fatalf("claimed %+v", r.held)
	}
	again := r.get(r.ids["tags"])
	if again == nil || again.Damage == "" {
		t.Errorf("once it is written again the damage is forgotten: %+v", again)
	}
	for _, name := range []string{"tags", "base64", "sound"} {
		if name == "tags" { // by another process, which has not claimed it
			held := r.held[name]
			r.end(&held, store.Discarded)
			continue
		}
		r.must("finish", r.finish(r.ctx(), r.outcome(name, store.Completed)))
	}
	if list, err := r.b.List(r.ctx(), store.Filter{}); err != nil || len(list) != 3 {
		t.Errorf("%d are listed, %v", len(list), err)
	}
}

func TestASweepGoesOnPastDamage(t *testing.T) {
	r := newRig(t, 1)
	r.add(r.task("bad", keyed("k", store.Skip)), r.task("cut", nil), r.task("sound", nil))
	key := keyRef(rules.KeyName{Queue: "q", Key: "k"}).ID
	r.spoilField(r.b.keys, key, "n", "many")
	r.spoilField(r.b.keys, key, "todo", 1)
	r.spoilField(r.b.tasks, r.key("cut"), "needs", []any{map[string]any{"t": "no id"}})
	r.spoilField(r.b.tasks, r.key("cut"), "todo", 1)
	r.damage(r.b.lines, lane{"q", 0}.page(1), `{"g":1,"c":"?","e":{}}`)
	r.damage(r.b.meta, recordRef("kind", "name").ID, `{"body":5,"todo":1}`)
	for range 3 { // the first finds the page damaged
		time.Sleep(2 * time.Millisecond)
		_, err := r.b.sweep(r.ctx(), 0)
		r.must("sweep", err)
	}
	r.claim()
	if _, found := r.held["sound"]; !found {
		t.Errorf("claimed %v", r.held)
	}
}

func TestADamagedWorkerIsDead(t *testing.T) {
	r := newRig(t, 1)
	r.add(r.task("x", nil))
	r.claim()
	other := store.Worker{ID: store.ID{7}}
	r.beat(r.b, other.ID, time.Hour)
	r.damage(r.b.meta, workerKey(r.worker.String()), `{"g":1,"l":5}`)
	if workers, err := r.b.Workers(r.ctx()); err != nil || len(workers) != 1 {
		t.Errorf("%v %v", workers, err)
	}
	tasks, err := r.b.Rescue(r.ctx(), r.term, 10)
	if err != nil || len(tasks) != 1 || tasks[0].ID != r.ids["x"] {
		t.Errorf("rescued %v, %v", tasks, err)
	}
	if _, err := r.b.Prune(r.ctx(), r.term, store.Retention{}, 10); err != nil {
		t.Error(err)
	}
}
