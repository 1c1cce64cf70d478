package storetest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tuskqueue/tusk/store"
)

func (t *T) put(r store.Record) (int64, error) {
	t.Helper()
	version, _, err := t.PutRecord(t.ctx(), store.PutRecord{Record: r})
	return version, err
}

// bodies returns the bodies of the selected records, one after the other.
func (t *T) bodies(f store.RecordFilter) (text string) {
	t.Helper()
	all, err := t.Records(t.ctx(), f)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		if r.Kind != f.Kind {
			t.Errorf("a record of the kind %q", r.Kind)
		}
		text += string(r.Body)
	}
	return text
}

var recordClauses = []clause{
	{"record/is created, read, changed and deleted by compare-and-swap", func(t *T) {
		r := store.Record{Kind: "setting", Name: "a.b:c-d", Body: []byte(`{"x": "ü\""}`)}
		v1, err := t.put(r)
		if err != nil || v1 == 0 {
			t.Fatal(v1, err)
		}
		if _, err := t.put(r); !errors.Is(err, store.ErrConflict) {
			t.Errorf("created twice: %v", err)
		}
		r.Version, r.Body = v1, []byte(`{"x":2}`)
		v2, err := t.put(r)
		if err != nil || v2 == v1 {
			t.Fatal(v2, err)
		}
		if _, err := t.put(r); !errors.Is(err, store.ErrConflict) {
			t.Errorf("an old version: %v", err)
		}
		all, err := t.Records(t.ctx(), store.RecordFilter{Kind: "setting"})
		if err != nil || len(all) != 1 || all[0].Name != r.Name || all[0].Kind != "setting" || all[0].Version != v2 ||
			string(all[0].Body) != `{"x":2}` {
			t.Errorf("%+v, %v", all, err)
		}
		if d := time.Since(all[0].UpdatedAt); d < -time.Minute || d > time.Minute {
			t.Errorf("updated at %v", all[0].UpdatedAt)
		}
		r.Version, r.Body = v2, nil
		if _, err := t.put(r); err != nil {
			t.Fatal(err)
		}
		if all, _ := t.Records(t.ctx(), store.RecordFilter{Kind: "setting"}); len(all) != 0 {
			t.Errorf("%+v", all)
		}
		if _, err := t.put(r); !errors.Is(err, store.ErrConflict) {
			t.Errorf("deleted twice: %v", err)
		}
		r.Version, r.Body = v1, []byte(`{}`)
		if _, err := t.put(r); !errors.Is(err, store.ErrConflict) {
			t.Errorf("a version from before the deletion: %v", err)
		}
	}},
	{"record/is listed by kind, in order of name", func(t *T) {
		for _, name := range []string{"b", "a", "c"} {
			if _, err := t.put(store.Record{Kind: "x", Name: name, Body: []byte(name)}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := t.put(store.Record{Kind: "y", Name: "a", Body: []byte(`other`)}); err != nil {
			t.Fatal(err)
		}
		all, _ := t.Records(t.ctx(), store.RecordFilter{Kind: "x"})
		text := ""
		for _, r := range all {
			text += r.Name + string(r.Body)
		}
		if text != "aabbcc" {
			t.Errorf("%s", text)
		}
	}},
	{"record/is found by name", func(t *T) {
		for _, name := range []string{"b", "a", "c"} {
			if _, err := t.put(store.Record{Kind: "x", Name: name, Body: []byte(name)}); err != nil {
				t.Fatal(err)
			}
		}
		for _, kind := range []string{"y", store.ManyRecords + "z"} {
			if _, err := t.put(store.Record{Kind: kind, Name: "a", Body: []byte(kind)}); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []struct {
			f    store.RecordFilter
			want string
		}{
			{store.RecordFilter{Kind: "x", Names: []string{"c", "a", "none", "c"}}, "ac"},
			{store.RecordFilter{Kind: "x", Names: []string{"none"}}, ""},
			{store.RecordFilter{Kind: "x", Names: []string{"a\x00", "\xff", "b"}}, "b"},
			{store.RecordFilter{Kind: "x", Names: []string{"c", "a", "b"}, After: "a", Limit: 1}, "b"},
			{store.RecordFilter{Kind: store.ManyRecords + "z", Names: []string{"a", "b"}}, store.ManyRecords + "z"},
		} {
			if got := t.bodies(c.f); got != c.want {
				t.Errorf("%+v: %q, want %q", c.f, got, c.want)
			}
		}
	}},
	{"record/is listed in pages, also if there are many of its kind", func(t *T) {
		for _, kind := range []string{"x", store.ManyRecords + "x"} {
			for _, name := range []string{"3", "1", "5", "2", "4"} {
				v, err := t.put(store.Record{Kind: kind, Name: name, Body: []byte(name)})
				if err == nil && (name == "2" || name == "4") {
					_, err = t.put(store.Record{Kind: kind, Name: name, Version: v})
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			t.eventually("all are listed", func() bool {
				return t.bodies(store.RecordFilter{Kind: kind, Limit: 9}) == "135"
			})
			for after, want := range map[string]string{"": "13", "1": "35", "2": "35", "3": "5", "5": ""} {
				if got := t.bodies(store.RecordFilter{Kind: kind, After: after, Limit: 2}); got != want {
					t.Errorf("%s after %q: %q, want %q", kind, after, got, want)
				}
			}
		}
		long := strings.Repeat("2", 200) + "`"
		for name, body := range map[string]string{long: "b", "4`": "d"} {
			if _, err := t.put(store.Record{Kind: "y", Name: name, Body: []byte(body)}); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"1", "3", "5"} {
			if _, err := t.put(store.Record{Kind: "y", Name: name, Body: []byte(name)}); err != nil {
				t.Fatal(err)
			}
		}
		for after, want := range map[string]string{"": "1b", "1": "b3", long: "3d", "3": "d5", "4`": "5"} {
			if got := t.bodies(store.RecordFilter{Kind: "y", After: after, Limit: 2}); got != want {
				t.Errorf("after %q: %q, want %q", after, got, want)
			}
		}
		for before, want := range map[string]string{"": "53", "6": "53", "5": "31", "4": "31", "3": "1", "1": ""} {
			f := store.RecordFilter{Kind: "x", Backward: true, Before: before, Limit: 2}
			if got := t.bodies(f); got != want {
				t.Errorf("backward from %q: %q, want %q", before, got, want)
			}
		}
	}},
	{"record/tasks come with it, both or neither", func(t *T) {
		r := store.Record{Kind: "x", Name: "n", Body: []byte(`1`)}
		n := newTask()
		v, results, err := t.PutRecord(t.ctx(), store.PutRecord{Record: r, Tasks: []store.NewTask{n}, Term: t.lead()})
		if err != nil || len(results) != 1 || results[0].ID != n.ID || results[0].Result != store.Added {
			t.Fatal(results, err)
		}
		t.is(n.ID, store.Available)
		m := newTask()
		if _, _, err := t.PutRecord(t.ctx(), store.PutRecord{Record: r, Tasks: []store.NewTask{m}}); !errors.Is(err,
			store.ErrConflict) {
			t.Errorf("%v", err)
		}
		t.gone(m.ID)
		r.Version = v
		if _, _, err := t.PutRecord(t.ctx(), store.PutRecord{Record: r, Tasks: []store.NewTask{m},
			Term: t.term + 1}); !errors.Is(err, store.ErrNotLeader) {
			t.Errorf("%v", err)
		}
		t.gone(m.ID)
		if all, _ := t.Records(t.ctx(), store.RecordFilter{Kind: "x"}); all[0].Version != v {
			t.Errorf("%+v", all)
		}
		_, results, err = t.PutRecord(t.ctx(), store.PutRecord{Record: r,
			Tasks: []store.NewTask{newTask(key(store.ScheduleKeys + "k")), newTask(key(store.ScheduleKeys + "k"))}})
		if err != nil || results[0].Result != store.Added || results[1].Result != store.Skipped {
			t.Errorf("%+v, %v", results, err)
		}
	}},
	{"record/many are updated at once, each by its own version", func(t *T) {
		var puts []store.PutRecord
		for _, name := range []string{"c", "a", "b"} {
			r := store.Record{Kind: "x", Name: name, Body: []byte(`1`)}
			v, err := t.put(r)
			if err != nil {
				t.Fatal(err)
			}
			r.Version, r.Body = v, []byte(name)
			puts = append(puts, store.PutRecord{Record: r,
				Tasks: []store.NewTask{newTask(), newTask(key(store.ScheduleKeys + "k"))}})
		}
		puts[1].Record.Version++
		puts = append(puts, store.PutRecord{Record: store.Record{Kind: "x", Name: "none", Version: 1, Body: []byte(`1`)},
			Tasks: []store.NewTask{newTask()}})
		if _, err := t.UpdateRecords(t.ctx(), t.lead()+1, puts); !errors.Is(err, store.ErrNotLeader) {
			t.Errorf("another term: %v", err)
		}
		updated, err := t.UpdateRecords(t.ctx(), t.term, puts)
		if err != nil || len(updated) != 4 {
			t.Fatal(updated, err)
		}
		all, _ := t.Records(t.ctx(), store.RecordFilter{Kind: "x"})
		if len(all) != 3 || string(all[0].Body)+string(all[1].Body)+string(all[2].Body) != "1bc" {
			t.Errorf("%+v", all)
		}
		if all[1].Version != updated[2].Version || all[2].Version != updated[0].Version ||
			updated[0].Version == updated[2].Version {
			t.Errorf("versions %+v of %+v", updated, all)
		}
		for i, u := range updated {
			switch i {
			case 1, 3:
				if u.Version != 0 || len(u.Enqueued) != 0 {
					t.Errorf("of another version: %+v", u)
				}
				t.gone(puts[i].Tasks[0].ID)
			default:
				if u.Version == 0 || len(u.Enqueued) != 2 || u.Enqueued[0].ID != puts[i].Tasks[0].ID ||
					u.Enqueued[0].Result != store.Added {
					t.Errorf("%+v", u)
				}
				t.is(puts[i].Tasks[0].ID, store.Available)
			}
		}
		if updated[0].Enqueued[1].Result != store.Added || updated[2].Enqueued[1].Result != store.Skipped {
			t.Errorf("%+v", updated)
		}
		if _, err := t.put(store.Record{Kind: "x", Name: "b", Version: updated[2].Version, Body: []byte(`2`)}); err != nil {
			t.Errorf("the new version: %v", err)
		}
	}},
	{"record/of many writers at once one wins each version", func(t *T) {
		v, err := t.put(store.Record{Kind: "x", Name: "n", Body: []byte(`0`)})
		if err != nil {
			t.Fatal(err)
		}
		for round := range 5 {
			var won atomic.Int64
			var next atomic.Int64
			var all sync.WaitGroup
			for i := range 6 {
				s := t.another()
				all.Go(func() {
					got, _, err := s.PutRecord(t.ctx(), store.PutRecord{
						Record: store.Record{Kind: "x", Name: "n", Version: v, Body: fmt.Append(nil, round, i)},
						Tasks:  []store.NewTask{newTask()}})
					if err == nil {
						won.Add(1)
						next.Store(got)
					} else if !errors.Is(err, store.ErrConflict) {
						t.Errorf("%v", err)
					}
				})
			}
			all.Wait()
			if won.Load() != 1 {
				t.Fatalf("%d writers won", won.Load())
			}
			v = next.Load()
		}
		if n := len(t.list(store.Filter{})); n != 5 {
			t.Errorf("%d tasks of 5 winners", n)
		}
	}},
}
