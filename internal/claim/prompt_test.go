package claim

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tuskqueue/tusk/store"
)

func TestWhereHintsArePromptALookThatFoundAllIsNotRepeatedForFreedSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{stock: 1}
		w := &worker{id: store.ID{1}, room: 10}
		s := w.source(c, "q")
		s.o.Prompt = func() bool { return true }
		run(t, s, func() {
			synctest.Wait()
			s.Freed()
			time.Sleep(promptPause / 2)
			synctest.Wait()
			if len(c.requests) != 1 || w.taken != 1 {
				t.Errorf("%d requests, %d tasks, want one", len(c.requests), w.taken)
			}
			c.stock = 1
			s.Hint("q")
			synctest.Wait()
			if w.taken != 2 {
				t.Errorf("%d tasks after a hint, want two", w.taken)
			}
			time.Sleep(promptPause)
			synctest.Wait()
			if len(c.requests) != 3 {
				t.Errorf("%d requests, want another one although nobody told of anything", len(c.requests))
			}
		})
	})
}

func TestFreedSlotsAreFilledAtOnceWhenTheLastLookFilledAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{stock: 5}
		w := &worker{id: store.ID{1}, room: 3}
		s := w.source(c, "q")
		s.o.Prompt = func() bool { return true }
		run(t, s, func() {
			synctest.Wait()
			w.room = 2
			s.Freed()
			synctest.Wait()
			if w.taken != 5 {
				t.Errorf("%d tasks were taken, want all", w.taken)
			}
		})
	})
}
