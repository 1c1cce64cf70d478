package couchbase

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/couchbase/gocbcore/v10/memd"

	"github.com/tuskqueue/tusk/internal/cbfake"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// A name may contain what separates the parts of a path.
func TestRecordsWhoseNamesHaveBackticks(t *testing.T) {
	r := newRig(t, 1)
	names := []string{"`", "a`b", "a`c"}
	versions := map[string]int64{}
	for _, name := range names {
		version, _, err := r.a.PutRecord(r.ctx(), store.PutRecord{Record: store.Record{Kind: "k`", Name: name,
			Body: []byte(name)}})
		r.must("put record", err)
		versions[name] = version
	}
	all, err := r.b.Records(r.ctx(), store.RecordFilter{Kind: "k`"})
	r.must("records", err)
	for i, name := range names {
		if len(all) != len(names) || all[i].Name != name || string(all[i].Body) != name {
			t.Fatalf("%d of %d are listed: %+v", len(all), len(names), all)
		}
		_, _, err := r.a.PutRecord(r.ctx(), store.PutRecord{Record: store.Record{Kind: "k`", Name: name,
			Version: versions[name]}})
		r.must("delete record", err)
	}
	if all, err = r.b.Records(r.ctx(), store.RecordFilter{Kind: "k`"}); err != nil || len(all) > 0 {
		t.Errorf("%+v are left: %v", all, err)
	}
}

// The versions of a record begin with the time, even if the first try to create it meets somebody else at the key of
// its task.
func TestTheFirstVersionOfARecordAfterAConflict(t *testing.T) {
	r := newRig(t, 1)
	r.add(r.task("before", keyed("k", store.Skip)))
	r.claim()
	r.must("finish", r.finish(r.ctx(), r.outcome("before", store.Completed)))
	key := keyRef(rules.KeyName{Queue: "q", Key: "k"})
	var met atomic.Bool
	r.f.Set(cbfake.Faults{Request: func(c memd.CmdCode, k string) cbfake.Spoil {
		if c == memd.CmdReplace && k == key.ID && met.CompareAndSwap(false, true) {
			d, err := r.b.read(r.ctx(), key)
			if err == nil {
				_, err = r.b.write(r.ctx(), d)
			}
			if err != nil {
				t.Errorf("replace: %v", err)
			}
		}
		return cbfake.Sound
	}})
	version, did, err := r.a.PutRecord(r.ctx(), store.PutRecord{Record: store.Record{Kind: "kind", Name: "r",
		Body: []byte("1")}, Tasks: []store.NewTask{r.task("x", keyed("k", store.Skip))}})
	r.f.Set(cbfake.Faults{})
	r.must("put record", err)
	if time.Since(instant(version)).Abs() > time.Hour || did[0].Result != store.Added || !met.Load() {
		t.Errorf("the version is %d, and the task %v; met: %v", version, did[0].Result, met.Load())
	}
	r.drain()
	r.all(true, "x")
}

// A process dies while it puts a new record with a task whose key exists. What it wrote in place of the record does not
// stay.
func TestThePlaceOfARecordThatWasNotDecidedDoesNotStay(t *testing.T) {
	kind := store.ManyRecords + "k"
	at := recordRef(kind, "n")
	var places atomic.Int64
	is := func(r *rig) bool {
		d, err := r.b.read(r.ctx(), at)
		r.must("read", err)
		return d != nil && d.body.(*record).Body == nil
	}
	t.Run("dies", func(t *testing.T) {
		for n := int64(1); n < 10; n++ {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, 1)
				r.add(r.task("before", keyed("k", store.Skip)))
				r.claim()
				r.must("finish", r.finish(r.ctx(), r.outcome("before", store.Completed)))
				_, _ = r.spoil(n, faults[0], func(ctx context.Context) error {
					rec := store.Record{Kind: kind, Name: "n", Body: []byte("1")}
					_, _, err := r.a.PutRecord(ctx, store.PutRecord{Record: rec,
						Tasks: []store.NewTask{r.task("x", keyed("k", store.Skip))}})
					return err
				})
				if is(r) {
					places.Add(1)
				}
				r.f.JumpClock(forgetAfter + time.Minute)
				if is(r) {
					t.Error("the place is left")
				}
			})
		}
	})
	if places.Load() == 0 {
		t.Error("nothing was written in place of the record")
	}
}

// A deleted record leaves the directory of its kind at once, and expires after a day. One that was created again stays.
func TestADeletedRecordExpires(t *testing.T) {
	r := newRig(t, 1)
	put := func(rec store.Record) int64 {
		t.Helper()
		rec.Kind = "k"
		version, _, err := r.a.PutRecord(r.ctx(), store.PutRecord{Record: rec})
		r.must("put record", err)
		return version
	}
	for _, name := range []string{"gone", "back"} {
		put(store.Record{Name: name, Version: put(store.Record{Name: name, Body: []byte("1")})})
	}
	names, err := r.b.listed(r.ctx(), r.b.meta, recordList("k"))
	if r.must("list", err); len(names) > 0 {
		t.Errorf("%v are listed", names)
	}
	put(store.Record{Name: "back", Body: []byte("2")})
	r.f.JumpClock(forgetAfter + time.Minute)
	if raw, _, err := r.b.get(r.ctx(), r.b.meta, recordRef("k", "gone").ID); raw != nil || err != nil {
		t.Errorf("it is still there: %s, %v", raw, err)
	}
	all, err := r.b.Records(r.ctx(), store.RecordFilter{Kind: "k"})
	if err != nil || len(all) != 1 || string(all[0].Body) != "2" {
		t.Errorf("%+v are left: %v", all, err)
	}
}

// No directory lists the records of a kind that may be large, so a name that no list would find is refused.
func TestNamesOfManyRecords(t *testing.T) {
	r := newRig(t, 1)
	put := func(name string) error {
		_, _, err := r.a.PutRecord(r.ctx(), store.PutRecord{Record: store.Record{Kind: store.ManyRecords + "k", Name: name,
			Body: []byte("1")}})
		return err
	}
	for _, name := range []string{"a|b", "a`b", "~~", "#a", "ä", strings.Repeat("a", 101)} {
		if err := put(name); !errors.Is(err, store.ErrUnstorable) {
			t.Errorf("%q: %v", name, err)
		}
	}
	long := strings.Repeat("z", 100)
	for _, name := range []string{"0-Az", long} {
		r.must("put record", put(name))
	}
	all, err := r.b.Records(r.ctx(), store.RecordFilter{Kind: store.ManyRecords + "k", Limit: 10})
	if err != nil || len(all) != 2 || all[0].Name != "0-Az" || all[1].Name != long {
		t.Errorf("%d are listed: %v", len(all), err)
	}
}

// A damaged directory is rebuilt without reading the records of other kinds, except those whose names are hashed.
func TestADirectoryOfRecordsIsRebuiltFromItsKind(t *testing.T) {
	r := newRig(t, 1)
	of := map[string][]string{"k": {"a", "~", "ä", "a`b", "a|b"}, "k2": {"a"}, "k|": {"a", "b"}, "j": {"a", "`"}}
	for kind, names := range of {
		for _, name := range names {
			_, _, err := r.a.PutRecord(r.ctx(), store.PutRecord{Record: store.Record{Kind: kind, Name: name,
				Body: []byte("1")}})
			r.must("put record", err)
		}
	}
	for kind, names := range of {
		_, err := r.b.meta.Upsert(recordList(kind), 1, nil)
		r.must("damage", err)
		all, err := r.b.Records(r.ctx(), store.RecordFilter{Kind: kind})
		if err != nil || len(all) != len(names) {
			t.Errorf("%d of %d records of the kind %s are listed: %v", len(all), len(names), kind, err)
		}
	}
	for _, prefix := range prefixesOf(recordList("k")) {
		if strings.HasPrefix(recordRef("j", "a").ID, prefix) || strings.HasPrefix(recordRef("k2", "a").ID, prefix) {
			t.Errorf("%s includes other kinds", prefix)
		}
	}
}

// A page of records costs what it holds, not what the kind has.
func TestRequestsOfAPageOfRecords(t *testing.T) {
	r := newRig(t, 1)
	for i := range 100 {
		_, _, err := r.a.PutRecord(r.ctx(), store.PutRecord{Record: store.Record{Kind: "k", Name: fmt.Sprintf("%03d", i),
			Body: []byte("{}")}})
		r.must("put", err)
	}
	for _, f := range []store.RecordFilter{
		{Kind: "k", After: "049", Limit: 10}, {Kind: "k", Backward: true, Before: "060", Limit: 10},
	} {
		before := r.f.Requests()
		page, err := r.a.Records(r.ctx(), f)
		if r.must("records", err); len(page) != 10 || page[0].Name[:2] != "05" {
			t.Errorf("%v: %v", f, page)
		}
		if n := r.f.Requests() - before; n > 11 {
			t.Errorf("%v: %d requests", f, n)
		}
	}
}
