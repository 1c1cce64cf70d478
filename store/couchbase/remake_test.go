package couchbase

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/couchbase/gocb/v2"
	"github.com/couchbase/gocbcore/v10/memd"

	"github.com/tuskqueue/tusk/internal/cbfake"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

var keyOfRig = keyRef(rules.KeyName{Queue: "q", Key: "k"}).ID

// bring makes b enqueue a task of the key.
func (r *rig) bring(name string, c store.OnConflict) store.Enqueued {
	r.Helper()
	did, err := r.b.Enqueue(r.ctx(), []store.NewTask{r.task(name, keyed("k", c))})
	r.must("enqueue", err)
	return did[0]
}

var damages = map[string]string{"no JSON": "no JSON", "in part": `{"q":5,"n":"?","h":{}}`, "no object": "[]"}

// A key that cannot be read stays with its holder.
func TestADamagedKeyIsMadeAnew(t *testing.T) {
	for name, text := range damages {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1)
			r.a.patience = r.b.patience
			r.add(r.task("old", keyed("k", store.Skip)), r.task("other", keyed("other", store.Skip)))
			r.claim()
			r.damage(r.b.keys, keyOfRig, text)
			if did := r.bring("new", store.Skip); did.Result != store.Skipped || did.ID != r.ids["old"] {
				t.Errorf("of one that is held: %+v", did)
			}
			if said := r.checked(); !strings.Contains(said, fmt.Sprintf("%q of collection key", keyOfRig)) {
				t.Errorf("Check says %q", said)
			}
			r.bring("next", store.Rerun)
			r.damage(r.b.keys, keyOfRig, text)
			r.must("finish", r.finish(r.ctx(), r.outcome("old", store.Completed)))
			if next := r.get(r.ids["next"]); next == nil || next.State != store.Available {
				t.Errorf("what waited for the end is %+v", next)
			}
			r.claim()
			r.damage(r.b.keys, keyOfRig, text)
			r.must("finish", r.finish(r.ctx(), r.outcome("next", store.Completed)))
			r.damage(r.b.keys, keyOfRig, text)
			if did := r.bring("once", store.Once); did.Result != store.Skipped || did.ID != r.ids["next"] {
				t.Errorf("of one that ran: %+v", did)
			}
			r.damage(r.b.keys, keyOfRig, text)
			if n, err := r.b.Prune(r.ctx(), r.term, store.Retention{Completed: time.Nanosecond}, 10); err != nil || n < 2 {
				t.Errorf("pruned %d, %v", n, err)
			}
			if did := r.bring("again", store.Once); did.Result != store.Added {
				t.Errorf("of one that was forgotten: %+v", did)
			}
		})
	}
}

// A call dies at any of its requests, and then its key cannot be read. Whatever the call has decided, at most one task
// has the key, and all tasks end.
func TestAKeyIsDamagedInTheMiddleOfACall(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, r *rig) error{
		"enqueue": func(ctx context.Context, r *rig) error {
			_, err := r.a.Enqueue(ctx, []store.NewTask{r.task("x", keyed("k", store.Replace))})
			return err
		},
		"record": func(ctx context.Context, r *rig) error {
			_, _, err := r.a.PutRecord(ctx, store.PutRecord{Record: store.Record{Kind: "a", Name: "b", Body: []byte("1")},
				Tasks: []store.NewTask{r.task("x", keyed("k", store.Replace))}})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			for n := int64(1); ; n++ {
				r := newRig(t, 1)
				met, _ := r.spoil(n, faults[0], func(ctx context.Context) error { return call(ctx, r) })
				if !met {
					break
				}
				r.damage(r.b.keys, keyOfRig, "no JSON")
				r.bring("y", store.Skip)
				r.oneOfAKey()
				r.drain()
			}
		})
	}
}

// A call that stores its task long after its key was damaged and rebuilt takes the task back, and says so.
func TestACallThatIsLaterThanADamagedKeyFails(t *testing.T) {
	r := newRig(t, 1)
	r.a.patience = r.b.patience
	late := r.task("late", keyed("k", store.Skip))
	asleep, awake := make(chan bool), make(chan bool)
	var slept atomic.Bool
	r.f.Set(cbfake.Faults{Request: func(code memd.CmdCode, key string) cbfake.Spoil {
		if code == memd.CmdAdd && key == late.ID.String() && slept.CompareAndSwap(false, true) {
			close(asleep)
			<-awake
		}
		return cbfake.Sound
	}})
	done, ctx := make(chan error, 1), r.ctx()
	go func() {
		_, err := r.a.Enqueue(ctx, []store.NewTask{late})
		done <- err
	}()
	<-asleep
	r.damage(r.b.keys, keyOfRig, "no JSON")
	if did := r.bring("y", store.Skip); did.Result != store.Added {
		t.Errorf("rebuilt: %+v", did)
	}
	close(awake)
	if err := <-done; !errors.Is(err, errRemade) {
		t.Errorf("the late call says %v", err)
	}
	r.oneOfAKey()
	r.drain()
}

// If more than one task could hold the key, none gets it until an operator has said which one does. Retention goes on.
func TestWhoHoldsADamagedKeyIsNotGuessed(t *testing.T) {
	r := newRig(t, 1)
	r.a.patience = r.b.patience
	r.add(r.task("ended", keyed("k", store.Skip)), r.task("plain", nil))
	r.claim()
	r.must("finish", r.finish(r.ctx(), r.outcome("ended", store.Completed), r.outcome("plain", store.Completed)))
	r.add(r.task("one", keyed("k", store.Skip)))
	_, err := r.b.keys.Remove(keyOfRig, nil) // a bug
	r.must("remove", err)
	r.add(r.task("two", keyed("k", store.Skip)))
	r.damage(r.b.keys, keyOfRig, "no JSON")
	_, err = r.b.Enqueue(r.ctx(), []store.NewTask{r.task("new", keyed("k", store.Replace))})
	if err == nil {
		t.Fatal("a third task has the key")
	}
	said := err.Error()
	for _, part := range []string{keyOfRig, r.key("one"), r.key("two"), "UPSERT INTO `" + r.b.bucket + "`.`tusk`.`key`"} {
		if !strings.Contains(said, part) || !strings.Contains(r.checked(), keyOfRig) {
			t.Errorf("it says %q, and not %q; Check says %q", said, part, r.checked())
		}
	}
	if n, err := r.b.Prune(r.ctx(), r.term, store.Retention{Completed: time.Nanosecond}, 10); n != 1 || err != nil {
		t.Errorf("pruned %d, %v", n, err)
	}
	_, value, _ := strings.Cut(said, "('"+keyOfRig+"', ")
	value = value[:strings.LastIndex(value, ")")]
	_, err = r.b.keys.Upsert(keyOfRig, []byte(value), &gocb.UpsertOptions{Transcoder: verbatim})
	r.must("upsert", err)
	if did := r.bring("third", store.Skip); did.Result != store.Skipped {
		t.Errorf("after that: %+v", did)
	}
	r.claim()
	r.must("finish", r.finish(r.ctx(), r.outcome("one", store.Completed)))
	r.must("finish", r.finish(r.ctx(), r.outcome("two", store.Completed)))
	if did := r.bring("last", store.Skip); did.Result != store.Added {
		t.Errorf("in the end: %+v", did)
	}
}

// A document that somebody else has repaired meanwhile is not overwritten. A new one is left alone as long as a call
// may still have to write.
func TestADamagedKeyIsLeftAloneAtFirst(t *testing.T) {
	r := newRig(t, 1)
	r.add(r.task("old", keyed("k", store.Skip)))
	sound, _, err := r.b.get(r.ctx(), r.b.keys, keyOfRig)
	r.must("get", err)
	r.b.patience = time.Second
	r.damage(r.b.keys, keyOfRig, "no JSON")
	ctx, cancel := context.WithTimeout(r.ctx(), 300*time.Millisecond)
	defer cancel()
	_, err = r.b.Enqueue(ctx, []store.NewTask{r.task("new", keyed("k", store.Skip))})
	if err == nil || !strings.Contains(err.Error(), keyOfRig) {
		t.Errorf("it says %v", err)
	}
	r.b.patience = time.Millisecond
	var mended atomic.Bool
	r.f.Set(cbfake.Faults{Request: func(code memd.CmdCode, key string) cbfake.Spoil {
		if code == memd.CmdReplace && key == keyOfRig && mended.CompareAndSwap(false, true) {
			if _, err := r.a.keys.Upsert(key, sound, &gocb.UpsertOptions{Transcoder: verbatim}); err != nil {
				t.Errorf("mend: %v", err)
			}
		}
		return cbfake.Sound
	}})
	if did := r.bring("newer", store.Skip); did.Result != store.Skipped || !mended.Load() {
		t.Errorf("in the end: %+v", did)
	}
	if raw, _, _ := r.b.get(r.ctx(), r.b.keys, keyOfRig); string(raw) != string(sound) {
		t.Errorf("it was rebuilt: %s", raw)
	}
}
