package couchbase

import (
	"context"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/couchbase/gocbcore/v10/memd"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/cbfake"
	"github.com/tuskqueue/tusk/store"
)

// ahead fails unless an instant follows the server's clock, which is a day ahead of this process's.
func ahead(t *testing.T, what string, now int64) {
	t.Helper()
	if by := time.Until(instant(now)); (by - 24*time.Hour).Abs() > time.Minute {
		t.Errorf("%s: the time is %v ahead", what, by)
	}
}

// A process whose clock is a day off never uses it: all calls that need the time before the server's is known wait for
// that.
func TestNobodyGoesByTheClockOfTheProcess(t *testing.T) {
	f := newFake(t, 1)
	f.JumpClock(24 * time.Hour)
	s := openFake(t, f)
	var asked atomic.Bool
	second := make(chan int64, 1)
	f.Set(cbfake.Faults{Request: func(_ memd.CmdCode, key string) cbfake.Spoil {
		if key == "clock" && asked.CompareAndSwap(false, true) {
			go func() { second <- s.now(context.Background()) }()
			select {
			case now := <-second:
				second <- now
			case <-time.After(20 * time.Millisecond):
			}
		}
		return cbfake.Sound
	}})
	first := s.now(context.Background())
	ahead(t, "the first", first)
	if !asked.Load() {
		t.Fatal("nobody asked the server for the time")
	}
	ahead(t, "the second", <-second)
}

// However slow the answers are, no handle is ahead of the server's clock, and delayed tasks wait for their whole delay.
func TestAHandleIsNeverAheadOfTheServersClock(t *testing.T) {
	f := newFake(t, 1)
	f.Set(cbfake.Faults{Request: func(_ memd.CmdCode, key string) cbfake.Spoil {
		if key == "clock" {
			time.Sleep(30 * time.Millisecond)
		}
		return cbfake.Sound
	}})
	s := openFake(t, f)
	now := s.now(t.Context())
	if by := time.Until(instant(now)); by > 0 {
		t.Errorf("the handle is %v ahead", by)
	}
	begun, id := time.Now(), tusk.NewID()
	n := store.NewTask{ID: id, Queue: "q", Kind: "k", Args: []byte("{}"), Delay: time.Hour}
	if _, err := s.Enqueue(t.Context(), []store.NewTask{n}); err != nil {
		t.Fatal(err)
	}
	tasks, err := s.List(t.Context(), store.Filter{IDs: []store.ID{id}})
	if err != nil || len(tasks) != 1 {
		t.Fatal(tasks, err)
	}
	if short := begun.Add(time.Hour).Sub(tasks[0].RunAt); short > 0 {
		t.Errorf("the task waits %v less than its delay", short)
	}
}

// Without a schema there is no time to learn, and nobody waits for it until their own time is up.
func TestWithoutASchemaNobodyWaitsForTheClock(t *testing.T) {
	f, err := cbfake.Start(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	s, err := Open(t.Context(), f.URL()+"?sasl=plain&kv_timeout=100")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s.now(ctx)
	if ctx.Err() != nil {
		t.Error("who asks for the time waits as long as they may")
	}
}

// A process that fails to read the server's clock at first tries again.
func TestTheClockIsLearntAfterAFailure(t *testing.T) {
	f := newFake(t, 1)
	f.JumpClock(24 * time.Hour)
	s := openFake(t, f)
	ctx, cancel := context.WithCancel(context.Background())
	f.Set(cbfake.Faults{Request: func(_ memd.CmdCode, key string) cbfake.Spoil {
		if key == "clock" {
			cancel()
			return cbfake.LoseRequest
		}
		return cbfake.Sound
	}})
	s.now(ctx)
	f.Set(cbfake.Faults{})
	ahead(t, "the next", s.now(context.Background()))
}

// If somebody corrects the clock of a process, the process continues by the server's clock.
func TestTheClockOfTheProcessIsSet(t *testing.T) {
	s := openFake(t, newFake(t, 1))
	*(*uint64)(unsafe.Pointer(&s.opened)) -= 3600 << 30 // the handle was opened while the clock was an hour slow
	if err := s.sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if off := time.Until(instant(s.now(t.Context()))).Abs(); off > time.Minute {
		t.Errorf("the time is %v off", off)
	}
}

// If the server's clock cannot be read, the next caller after a few seconds tries again, and nobody waits long.
func TestTheClockIsReadAgainSoonAfterAFailure(t *testing.T) {
	f := newFake(t, 1)
	s := openFake(t, f)
	s.now(t.Context())
	s.clock.synced.Store(time.Now().Add(-resync - time.Second).UnixNano())
	f.Set(cbfake.Faults{Request: func(_ memd.CmdCode, key string) cbfake.Spoil {
		if key == "clock" {
			return cbfake.LoseRequest
		}
		return cbfake.Sound
	}})
	before, begun := s.clock.synced.Load(), time.Now()
	s.now(t.Context())
	if s.clock.synced.Load() == before {
		t.Error("nobody tried to read the clock")
	}
	if took := time.Since(begun); took > 2*resyncWithin {
		t.Errorf("a caller waited %v", took)
	}
	next := time.Unix(0, s.clock.synced.Load()).Add(resync)
	if in := time.Until(next); in > resyncAfter {
		t.Errorf("the next try comes in %v", in)
	}
}
