package couchbase

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/couchbase/gocb/v2"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// damage replaces a document with a text.
func (r *rig) damage(in *gocb.Collection, key, text string) {
	r.Helper()
	r.must("damage "+key, r.b.again(r.ctx(), func() error {
		_, err := in.Upsert(key, []byte(text), &gocb.UpsertOptions{Context: r.ctx(), Transcoder: verbatim})
		return err
	}))
}

// spoilField replaces a field of a document.
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

// The worker has leased tasks of the sheet that is damaged, too.
func TestADamagedSheetHoldsUpNoOtherTask(t *testing.T) {
	r := newRig(t, 1)
	r.lentSheet()
	r.add(r.task("x", nil), r.task("y", keyed("k", store.Skip)))
	r.must("claim", r.lend(r.ctx(), 100))
	at, _ := block(r.ids["s0"].String())
	r.damage(r.b.tasks, at.ID, `{"g":1,"t":5,"from":"x","texts":7}`)
	if list, err := r.b.List(r.ctx(), store.Filter{Limit: 100}); err != nil || len(list) != 2 {
		t.Errorf("%d tasks are listed, %v", len(list), err)
	}
	cancel := store.Edit{IDs: []store.ID{r.ids["s0"], r.ids["y"]}, Change: store.Change{Op: store.Cancel}}
	changes, err := r.b.Edit(r.ctx(), cancel)
	if err != nil || len(changes) == 0 {
		t.Errorf("%v, %v", changes, err)
	}
	r.damage(r.b.meta, workerKey(r.worker.String()), `{"g":1,"l":5}`) // it is dead
	for range 3 {
		tasks, err := r.b.Rescue(r.ctx(), r.term, 10)
		if err != nil {
			t.Fatal(err)
		}
		for i := range tasks {
			r.end(&tasks[i], store.Available)
		}
	}
	if x := r.get(r.ids["x"]); x == nil || x.State != store.Available {
		t.Errorf("%+v", x)
	}
	if _, err := r.b.Prune(r.ctx(), r.term, store.Retention{Completed: 1}, 10); err != nil {
		t.Error(err)
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

func TestADamagedCursorIsSetAnew(t *testing.T) {
	for name, text := range map[string]string{"in part": `{"n":1,"i":"?"}`, "wholly": "no JSON"} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1)
			var first []store.NewTask
			for range 2 * pageSize { // so that the cursor is not at the first page
				first = append(first, r.task("first", nil))
			}
			r.add(first...)
			for range 3 {
				r.claim()
			}
			r.add(r.task("x", nil))
			r.damage(r.b.lines, lane{"q", 0}.cursor(), text)
			fresh := openFake(t, r.f)
			for range 2 {
				time.Sleep(2 * time.Millisecond)
				_, err := fresh.sweep(r.ctx(), 0)
				r.must("sweep", err)
			}
			_, err := fresh.Enqueue(r.ctx(), []store.NewTask{r.task("y", nil)})
			r.must("enqueue", err)
			for range 4 {
				r.claim()
			}
			if r.held["x"].ID.IsZero() || r.held["y"].ID.IsZero() {
				t.Errorf("claimed neither or one: %v %v", r.held["x"].ID, r.held["y"].ID)
			}
		})
	}
}

func TestWhereItCannotBeReadWhoLeadsNobodyDoes(t *testing.T) {
	r := newRig(t, 1)
	was := r.term
	r.damage(r.b.meta, "leader", `{"h":5,"t":"?"}`)
	if _, err := r.b.Rescue(r.ctx(), was, 10); !errors.Is(err, store.ErrNotLeader) {
		t.Errorf("rescue: %v", err)
	}
	if r.lead(); r.term <= was {
		t.Errorf("the term %d follows %d", r.term, was)
	}
}

// A damaged document of statistics or of errors holds up neither outcomes nor what is read of the others.
func TestDamagedStatisticsHoldUpNothing(t *testing.T) {
	r := newRig(t, 1)
	r.add(r.task("x", nil), r.task("y", nil))
	r.claim()
	fails := func(name string) {
		o := r.outcome(name, store.Discarded)
		o.Error, o.Fingerprint = "no", "print"
		r.must("finish", r.finish(r.ctx(), o))
	}
	fails("x")
	of := errorPrefix + named("q", "x", "print")
	r.damage(r.b.meta, of, "no JSON")
	r.damage(r.b.meta, errorPrefix+"other", `{"first":5}`)
	r.damage(r.b.meta, statKey(r.b.now(r.ctx())/time.Minute.Microseconds(), "other"), `[{"queue":5}]`)
	fails("y")
	groups, err := r.b.Errors(r.ctx(), store.ErrorFilter{})
	if err != nil || len(groups) != 1 || groups[0].Kind != "y" {
		t.Errorf("the groups of errors are %+v, %v", groups, err)
	}
	stats, err := r.a.Stats(r.ctx(), store.StatsFilter{Bucket: time.Hour})
	if err != nil || len(stats) != 2 {
		t.Errorf("the statistics are %+v, %v", stats, err)
	}
	again := r.task("x", nil)
	r.add(again)
	r.claim()
	fails("x")
	if groups, err = r.b.Errors(r.ctx(), store.ErrorFilter{}); err != nil || len(groups) != 2 {
		t.Errorf("the groups of errors are %+v, %v", groups, err)
	}
}

// A handle remembers a limited number of the errors that it has logged.
func TestErrorsThatWereLoggedAreForgotten(t *testing.T) {
	logger := slog.Default()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	defer slog.SetDefault(logger)
	s := &Store{}
	for i := range 5 * mostLogged / 2 {
		if err := s.passing(fmt.Errorf("document %d is %w", i, errDamaged)); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	s.damaged.Range(func(any, any) bool { n++; return true })
	if n == 0 || n > mostLogged {
		t.Errorf("%d errors are remembered", n)
	}
}
