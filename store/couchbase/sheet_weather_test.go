package couchbase

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/internal/cbfake"
	"github.com/tuskqueue/tusk/store"
)

// Many tasks in sheets, as many as TUSK_TEST_SHEETS says, while faults of every kind strike at once.
func TestManyTasksInSheetsUnderFaults(t *testing.T) {
	n := 3000
	if text := os.Getenv("TUSK_TEST_SHEETS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatalf("TUSK_TEST_SHEETS: %v", err)
		}
	}
	w := newWeather(t, 3, cbfake.Faults{Request: cbfake.SpoilSome(1), Lag: time.Second, Remember: 200 * time.Millisecond})
	w.tasks, w.limit, w.lasts = n/2, 250, time.Minute+time.Duration(n)*4*time.Millisecond
	w.ttl, w.dies = 2*time.Second, 3
	w.produce, w.ends = w.produceSheets, anyEnd
	back := 0 // documents that a failover has lost
	w.batter = func(round int) {
		switch {
		case round%1000 == 500:
			w.f.JumpClock([]time.Duration{2 * time.Second, -time.Second}[round/1000%2])
		case round%40 == 20:
			for range w.f.Vbuckets() / 3 {
				back += w.f.FailOver(rand.IntN(w.f.Vbuckets()), 100*time.Millisecond)
			}
		case round%40 == 0:
			w.f.ForgetLocks()
		}
	}
	w.play()
	w.Logf("failovers took back %d writes; %d outcomes were refused", back, w.refused)
	w.countSheets()
}

// produceSheets enqueues batches that fill blocks, and others that end within one.
func (w *weather) produceSheets(ctx context.Context, s *Store, who int) {
	for left := w.tasks; left > 0 && ctx.Err() == nil; {
		tasks := make([]store.NewTask, min(left, 8+rand.IntN(300)))
		for i, id := range blocks(len(tasks)) {
			tasks[i] = store.NewTask{ID: id, Kind: "k", Queue: "q", Args: fmt.Appendf(nil, "[%d,%d]", who, i)}
		}
		did, err := s.Enqueue(ctx, tasks)
		if err != nil {
			continue
		}
		w.acknowledged(did)
		left -= len(tasks)
	}
}

// anyEnd completes most attempts. A few fail, are given back, or say more than a sheet can represent.
func anyEnd(t *store.Task) store.Outcome {
	o := store.Outcome{Task: t, State: store.Completed, Attempt: t.Attempt}
	switch rand.IntN(200) {
	case 0:
		o.State, o.Error, o.Fingerprint = store.Retryable, "no", "no"
	case 1:
		o.State = store.Available
	case 2:
		o.Note = &store.Note{Output: []byte(`"a"`)}
	}
	return o
}

// countSheets fails unless most of the acknowledged tasks are still in sheets.
func (w *weather) countSheets() {
	w.Helper()
	in := map[ref]*doc{}
	n := 0
	for id := range w.added {
		at, _ := block(id.String())
		d, known := in[at]
		if !known {
			var err error
			d, err = w.b.read(w.ctx(), at)
			w.must("read", err)
			in[at] = d
		}
		if d != nil && d.of(id.String()) != nil {
			n++
		}
	}
	w.Logf("%d tasks in %d blocks, of which %d lie in sheets at the end", len(w.added), len(in), n)
	if n < len(w.added)/2 {
		w.Errorf("only %d of %d tasks lie in sheets", n, len(w.added))
	}
}
