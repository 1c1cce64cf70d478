package couchbase

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/couchbase/gocb/v2"
	"github.com/couchbase/gocbcore/v10/memd"

	"github.com/tuskqueue/tusk/internal/cbfake"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/storetest"
)

// A storm found each of the bugs in this file, and the storm's tests plant each one again.

var lineOfRig = lane{"q", 0}

// some makes tasks that are named after their places.
func (r *rig) some(n int) []store.NewTask {
	tasks := make([]store.NewTask, n)
	for i := range tasks {
		tasks[i] = r.task(fmt.Sprint("t", i), nil)
	}
	return tasks
}

// claimAll makes b claim until there is nothing left, and returns the tasks in order. Nothing sweeps.
func (r *rig) claimAll(limit int) (ids []store.ID) {
	r.Helper()
	me := storetest.NewID()
	r.beat(r.b, me, time.Hour)
	for {
		tasks, err := r.b.Claim(r.ctx(), store.ClaimRequest{Worker: me, Queues: []string{"q"}, Limit: limit,
			Token: store.NewToken()})
		r.must("claim", err)
		if len(tasks) == 0 {
			return ids
		}
		for i := range tasks {
			ids = append(ids, tasks[i].ID)
		}
	}
}

// A process that begins to enqueue, or has not for a while, finds the end of a long lane without going over all its
// pages.
func TestAnEnqueueFindsTheLastOfManyPages(t *testing.T) {
	for i, pages := range []int{1, 2, 3, 4, 5, 5, 1000, 1000} {
		r := newRig(t, 1)
		r.a.minds.appended(lineOfRig, i%2) // the page that it knows, if any
		_, err := r.b.open(r.ctx(), lineOfRig)
		r.must("open", err)
		r.must("fill", each(pages, func(i int) error {
			_, err := r.b.lines.Upsert(lineOfRig.page(i+1), &page{Count: pageSize, Entries: []entry{}}, nil) // sealed
			return err
		}))
		before, x := r.f.Requests(), r.task("x", nil)
		_, err = r.a.Enqueue(r.ctx(), []store.NewTask{x})
		r.must("enqueue", err)
		if n := r.f.Requests() - before; n > 40 {
			t.Errorf("the enqueue behind %d pages takes %d requests", pages, n)
		}
		p, err := r.b.readPage(r.ctx(), lineOfRig, pages+1)
		if r.must("read", err); p == nil || len(p.Entries) != 1 || p.Entries[0].id != x.ID.String() {
			t.Errorf("behind %d pages comes %+v", pages, p)
		}
	}
}

// A producer that has slept creates a page that others have filled, read and deleted meanwhile. The tasks that it
// appends there are still found.
func TestAPageThatWasPassedDoesNotComeBackUnread(t *testing.T) {
	r := newRig(t, 1)
	_, err := r.a.Enqueue(r.ctx(), r.some(1)) // a takes the first page for the last
	r.must("enqueue", err)
	r.add(r.some(pageSize - 1)...) // this seals it
	asleep, awake := make(chan bool), make(chan bool)
	var slept atomic.Bool
	r.f.Set(cbfake.Faults{Request: func(code memd.CmdCode, key string) cbfake.Spoil {
		if code == memd.CmdAdd && key == lineOfRig.page(2) && slept.CompareAndSwap(false, true) {
			close(asleep)
			<-awake
		}
		return cbfake.Sound
	}})
	late := r.task("late", nil)
	done, ctx := make(chan error, 1), r.ctx()
	go func() {
		_, err := r.a.Enqueue(ctx, []store.NewTask{late})
		done <- err
	}()
	<-asleep
	for range 3 { // the second page and others come and go
		r.add(r.some(pageSize)...)
		r.claimAll(100)
	}
	close(awake)
	r.must("enqueue", <-done)
	if got := r.claimAll(100); !slices.Equal(got, []store.ID{late.ID}) {
		t.Errorf("it claimed %d tasks, and not the one that was enqueued last", len(got))
	}
}

// A claim reads a page to its end but fails to move the cursor. The page stays, and so do the pages after the cursor.
func TestAPageStaysWhereTheMoveOfItsCursorHasFailed(t *testing.T) {
	r := newRig(t, 1)
	r.add(r.some(pageSize)...) // a full page, which is sealed
	r.a.minds.clash(lineOfRig) // makes it lock the cursor
	var met atomic.Bool
	r.f.Set(cbfake.Faults{Request: func(code memd.CmdCode, key string) cbfake.Spoil {
		if code == memd.CmdReplace && key == lineOfRig.cursor() && met.CompareAndSwap(false, true) {
			r.f.ForgetLocks() // so that somebody else can move it first
			var c cursor
			got, err := r.b.lines.Get(key, nil)
			if err == nil {
				err = got.Content(&c)
			}
			if err == nil {
				_, err = r.b.lines.Replace(key, c, &gocb.ReplaceOptions{Cas: got.Cas()})
			}
			if err != nil {
				t.Errorf("move the cursor: %v", err)
			}
		}
		return cbfake.Sound
	}})
	_, err := r.a.Claim(r.ctx(), store.ClaimRequest{Worker: r.worker, Queues: []string{"q"}, Limit: pageSize,
		Token: store.NewToken()})
	r.must("claim", err)
	r.f.Set(cbfake.Faults{})
	if p, err := r.b.readPage(r.ctx(), lineOfRig, 1); err != nil || p == nil {
		t.Errorf("the page has gone: %v", err)
	}
	r.add(r.some(3)...)
	if got := r.claimAll(10); len(got) != 3 {
		t.Errorf("it claimed %d of three tasks", len(got))
	}
}

// The tasks of a call are claimed in order, with and without keys.
func TestACallKeepsItsOrderWithAndWithoutKeys(t *testing.T) {
	r := newRig(t, 1)
	var tasks []store.NewTask
	var want []string
	for i := range 40 {
		n := r.task(fmt.Sprint("t", i), nil)
		if i%3 == 1 {
			n.Key = fmt.Sprint("k", i)
		}
		tasks, want = append(tasks, n), append(want, n.ID.String())
	}
	r.add(tasks...)
	var got []string
	for _, id := range r.claimAll(7) {
		got = append(got, id.String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("in order:\n%s\nclaimed:\n%s", strings.Join(want, " "), strings.Join(got, " "))
	}
}

// A failover sets the cursor back to a page that was passed and deleted, as were pages after it, or to one that comes
// back as it was before it was sealed. Claims go on at the page to which others append meanwhile. Nothing sweeps.
func TestACursorThatAFailoverSetsBack(t *testing.T) {
	for name, comesBack := range map[string]bool{"its page is gone": false, "its page is back": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1)
			for range 5 {
				r.add(r.some(pageSize)...)
				r.claimAll(store.MaxPage)
			}
			r.add(r.some(1)...) // now the handle appends to the page after those
			r.claimAll(1)
			at, err := r.b.open(r.ctx(), lineOfRig)
			r.must("open", err)
			if at.Page < 5 {
				t.Fatalf("the cursor is at page %d", at.Page)
			}
			_, err = r.b.lines.Upsert(lineOfRig.cursor(), cursor{1, 0}, nil)
			r.must("set the cursor back", err)
			if comesBack {
				_, err = r.b.makePage(r.ctx(), lineOfRig, 1)
				r.must("bring the page back", err)
			}
			r.add(r.some(3)...)
			time.Sleep(mindFor) // the cursor is read again
			if got := r.claimAll(10); len(got) != 3 {
				t.Errorf("%d of 3 are claimed", len(got))
			}
		})
	}
}
