package couchbase

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/couchbase/gocb/v2"

	"github.com/tuskqueue/tusk/store"
)

// sweeps makes b sweep a few times, each within its time.
func (r *rig) sweeps(n int) {
	r.Helper()
	for range n {
		time.Sleep(2 * time.Millisecond)
		_, err := r.b.sweep(r.ctx(), 0)
		r.must("sweep", err)
	}
}

// checked returns what Check reports of damage.
func (r *rig) checked() string {
	r.Helper()
	all, err := r.b.Check(r.ctx())
	r.must("check", err)
	i := slices.IndexFunc(all, func(w string) bool { return strings.Contains(w, "damaged") })
	if i < 0 {
		return ""
	}
	return all[i]
}

// urgent puts a task in another lane.
func urgent(n *store.NewTask) { n.Priority = -1 }

// Tasks are enqueued, and the sweep lists their lanes.
func TestADamagedBoardIsMadeAnew(t *testing.T) {
	for name, text := range map[string]string{"no JSON": "no JSON", "no object": "[1]", "null": "null",
		"no priority": `{"0":1,"?":1}`} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1)
			r.add(r.task("x", nil), r.task("second", func(n *store.NewTask) { n.Priority = 1 }))
			r.damage(r.b.lines, board("q"), text)
			r.add(r.task("y", nil), r.task("new lane", urgent))
			r.sweeps(1)
			if r.claim(); len(r.held) != 4 {
				t.Errorf("claimed %d of four", len(r.held))
			}
			if said := r.checked(); !strings.Contains(said, `"b|q" of collection line`) {
				t.Errorf("Check says %q", said)
			}
			if lanes, err := r.b.lanes(r.ctx(), "q"); err != nil || len(lanes) != 3 {
				t.Errorf("the board lists %v, %v", lanes, err)
			}
		})
	}
}

// A board that can be read but lists too few lanes is completed.
func TestALaneThatNoBoardListsIsFound(t *testing.T) {
	r := newRig(t, 1)
	r.add(r.task("x", nil))
	r.damage(r.b.lines, board("q"), "{}")
	r.sweeps(1)
	if r.claim(); len(r.held) != 1 {
		t.Error("it is not claimed")
	}
}

// If another process repairs a directory meanwhile, its version is not overwritten.
func TestADirectoryThatIsSoundAgainStays(t *testing.T) {
	r := newRig(t, 1)
	r.damage(r.b.lines, board("q"), "no JSON")
	raw, cas, err := r.b.get(r.ctx(), r.b.lines, board("q"))
	r.must("get", err)
	_, damage := namesIn(board("q"), raw)
	r.damage(r.b.lines, board("q"), `{"5":1}`)
	r.must("renew", r.b.renew(r.ctx(), r.b.lines, board("q"), raw, cas, map[string]int64{"0": 1}, damage))
	if lanes, err := r.b.lanes(r.ctx(), "q"); err != nil || len(lanes) != 1 || lanes[0].Priority != 5 {
		t.Errorf("the board lists %v, %v", lanes, err)
	}
}

func TestADamagedDirectoryOfWorkersIsMadeAnew(t *testing.T) {
	r := newRig(t, 1)
	r.add(r.task("x", nil))
	r.claim()
	r.damage(r.b.meta, workerList, "no JSON")
	other := store.ID{7}
	r.beat(r.b, other, time.Hour)
	if workers, err := r.b.Workers(r.ctx()); err != nil || len(workers) != 2 {
		t.Errorf("%v %v", workers, err)
	}
	r.damage(r.b.meta, workerList, "5")
	r.must("leave", r.b.mutate(r.ctx(), r.b.meta, workerKey(r.worker.String()), 0, gocb.RemoveSpec("g", nil)))
	if tasks, err := r.b.Rescue(r.ctx(), r.term, 10); err != nil || len(tasks) != 1 {
		t.Errorf("rescued %v, %v", tasks, err)
	}
	if said := r.checked(); !strings.Contains(said, `"workers" of collection meta`) {
		t.Errorf("Check says %q", said)
	}
}

// TestAWorkerIsListedWhateverIsForgottenMeanwhile registers workers while others look for workers that are gone. A
// worker that is in the directory and has no document yet looks like one of those.
func TestAWorkerIsListedWhateverIsForgottenMeanwhile(t *testing.T) {
	r := newRig(t, 1)
	stop, done := make(chan struct{}), make(chan error, 2)
	for range cap(done) {
		go func() {
			for {
				select {
				case <-stop:
					done <- nil
					return
				default:
				}
				if _, err := r.b.Rescue(r.ctx(), r.term, 10); err != nil {
					done <- err
					return
				}
			}
		}()
	}
	var made []string
	for n := range byte(100) {
		id := store.ID{1, n}
		r.beat(r.b, id, time.Hour)
		made = append(made, id.String())
	}
	close(stop)
	for range cap(done) {
		r.must("rescue", <-done)
	}
	listed, err := r.b.listed(r.ctx(), r.b.meta, workerList)
	r.must("list", err)
	for _, id := range made {
		if !slices.Contains(listed, id) {
			t.Errorf("worker %s is not listed", id)
		}
	}
}

func TestADamagedDirectoryOfRecordsIsMadeAnew(t *testing.T) {
	r := newRig(t, 1)
	put := func(kind, name string) {
		t.Helper()
		_, _, err := r.b.PutRecord(r.ctx(), store.PutRecord{Record: store.Record{Kind: kind, Name: name, Body: []byte("1")}})
		r.must("put", err)
	}
	put("a", "one")
	put("b", "other")
	r.damage(r.b.meta, recordList("a"), "no JSON")
	put("a", "two")
	all, err := r.b.Records(r.ctx(), store.RecordFilter{Kind: "a"})
	if err != nil || len(all) != 2 || all[0].Name != "one" || all[1].Name != "two" {
		t.Errorf("%v %v", all, err)
	}
}

// A lost cursor is set beyond tasks that nobody has claimed. They still run, and only once.
func TestWhatADamagedCursorPassesIsFound(t *testing.T) {
	for name, text := range map[string]string{"wholly": "no JSON", "a page": `{"n":"?","i":3}`,
		"beyond": `{"n":900,"i":3}`, "before": `{"n":1,"i":-1}`} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1)
			r.add(r.some(3 * pageSize)...) // b knows only the last page
			r.claimSome(10)
			r.damage(r.b.lines, lineOfRig.cursor(), text)
			r.add(r.task("late", nil))
			found := map[store.ID]bool{}
			for range 10 {
				for _, id := range r.claimAll(100) {
					if found[id] {
						t.Errorf("%v is claimed twice", id)
					}
					found[id] = true
				}
				r.sweeps(1)
			}
			if want := 3*pageSize + 1 - 10; len(found) != want {
				t.Errorf("claimed %d tasks and not %d", len(found), want)
			}
		})
	}
}

// claimSome makes b claim n tasks.
func (r *rig) claimSome(n int) {
	r.Helper()
	r.beat(r.b, store.ID{9}, time.Hour)
	tasks, err := r.b.Claim(r.ctx(), store.ClaimRequest{Worker: store.ID{9}, Queues: []string{"q"}, Limit: n,
		Token: store.NewToken()})
	r.must("claim", err)
	if len(tasks) != n {
		r.Fatalf("claimed %d of %d", len(tasks), n)
	}
}

// Nothing can be appended to a damaged page, so entries go to the next one.
func TestADamagedPageHoldsUpNoEnqueue(t *testing.T) {
	for name, text := range map[string]string{"no JSON": "no JSON", "no number": `{"g":1,"c":null,"e":[]}`,
		"no list": `{"g":1,"c":1,"e":5}`} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1)
			r.add(r.task("x", nil))
			r.damage(r.b.lines, lineOfRig.page(1), text)
			r.add(r.task("y", nil))
			r.sweeps(2)
			if r.claim(); len(r.held) != 2 {
				t.Errorf("claimed %d of two", len(r.held))
			}
		})
	}
}
